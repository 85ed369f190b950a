"""Metrics as rows of data: CSV, JSON lines, YAML, and a line for a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

from echelon.cli.printing.data_text import json_text, yaml_text
from echelon.cli.printing.say import shown
from echelon.metrics.text import is_finite
from echelon.model.output.log import in_part
from echelon.model.output.metric import COLUMNS, Metric, as_row

Print = Callable[[str, Metric], object]


def number(value: float) -> str:
    """A number for a person."""
    return f"{value:.6g}"


def as_data(metric: Metric) -> dict[str, Any]:
    """A metric as JSON has it; what JSON has no number for is a text: nan, inf, -inf. One of a step has that
    step, as `part`.
    """
    row: dict[str, Any] = {} if metric.part is None else {"part": metric.part}
    row |= zip(COLUMNS, as_row(metric), strict=True)
    if not is_finite(metric.value):
        row["value"] = str(metric.value)
    return row


def printer(format_: str, to: TextIO, *, parts: bool = False) -> Print:
    """What prints the metrics of runs in a format; with `parts`, of steps of runs."""
    if format_ == "csv":
        return _csv(to, parts=parts)
    return {"json": _json, "yaml": _yaml, "text": _text}[format_](to)


def _csv(to: TextIO, *, parts: bool) -> Print:
    import csv

    rows = csv.writer(to, lineterminator="\n")
    rows.writerow(["run", *(["part"] if parts else []), *COLUMNS])

    def write(run: str, metric: Metric) -> None:
        row = [run, *([metric.part] if parts else []), *as_row(metric)]
        rows.writerow([shown(each) if isinstance(each, str) else each for each in row])

    return write


def _json(to: TextIO) -> Print:
    return lambda run, metric: to.write(json_text({"run": run, **as_data(metric)}) + "\n")


def _yaml(to: TextIO) -> Print:
    return lambda run, metric: to.write(yaml_text([{"run": run, **as_data(metric)}]))


def _text(to: TextIO) -> Print:
    def write(_run: str, metric: Metric) -> None:
        who = metric.source if metric.rank is None else metric.rank
        if metric.part:
            who = f"{metric.part} {metric.source}" if metric.source else in_part(metric.part, metric.rank)
        place = [] if metric.epoch is None else [f"epoch {number(metric.epoch)}"]
        place += [] if metric.step is None else [f"step {metric.step}"]
        to.write(shown(" ".join([f"[{who}]", *place, f"{metric.name}={number(metric.value)}"])) + "\n")

    return write
