"""The executed notebook: the user's own with the outputs of this run, as .ipynb, and as one HTML page.

The page shows cells as Jupyter does, by nbconvert, where the extra `notebook` is installed."""

from __future__ import annotations

import copy
import html
import json
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from echelon.engines.durable import replace_file
from echelon.notebook.analysis.pipeline import Pipeline
from echelon.notebook.kept.folder import PipelineFolder, PipelineRecord

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
pre{background:#f6f6f6;padding:.7em;overflow-x:auto;margin:.3em 0}
pre.out{background:#fff;border-left:3px solid #ddd}
pre.error{border-left-color:#c33}h2{font-size:1em;color:#666;margin:1.5em 0 .3em;font-weight:600}
table{border-collapse:collapse}td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:left}
iframe{border:0;width:100%;min-height:12em}img{max-width:100%}"""
_PICTURES = ("image/png", "image/jpeg")


@cache
def load_beside() -> None:
    """Begin to import nbconvert while the caller waits for something else: the import takes longer than the
    report itself.
    """
    threading.Thread(target=_load, name="nbconvert", daemon=True).start()


def _load() -> None:
    with suppress(ImportError):
        import nbconvert  # noqa: F401


def rendered_cells(document: Mapping[str, Any], heads: Mapping[int, str]) -> tuple[str, str] | None:
    """The cells as HTML, each with its head, by its number, before it, and the style that they need; None
    where nbconvert is not installed, or cannot show this notebook.

    It names no other host, and what cells show as HTML has no scripts: the page is opened from a disk, with
    rights that a notebook's outputs must not have."""
    try:
        import nbformat
        from nbconvert import HTMLExporter
        from nbformat.v4.rwbase import rejoin_lines
        from pygments.formatters import HtmlFormatter
    except ImportError:
        return None
    exporter = HTMLExporter(template_name="basic", sanitize_html=True, embed_images=False)
    try:
        whole = rejoin_lines(nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, **document}))
        cells = []
        for number, cell in enumerate(whole.cells, 1):
            if number in heads:
                cells.append(nbformat.from_dict(_head(number, heads[number])))
            cell.setdefault("id", f"cell-{number}")  # files of before 4.5, and of many tools, have none
            cells.append(cell)
        whole.cells, whole.nbformat_minor = cells, max(5, whole.nbformat_minor)
        body, _ = exporter.from_notebook_node(whole)
    except Exception:  # noqa: BLE001 - a notebook that it cannot show costs no run: our own page shows it
        return None
    return body, HtmlFormatter().get_style_defs(".highlight")


def _head(number: int, text: str) -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "id": f"head-{number}",
        "metadata": {},
        "source": f"<h2>{text}</h2>",
    }


def write_reports(pipeline: Pipeline, folder: PipelineFolder, record: PipelineRecord) -> None:
    """Write `notebook.ipynb` and `notebook.html` among the results."""
    outputs = _outputs(pipeline, folder)
    document = with_outputs(pipeline.notebook.document, outputs)
    text = f"{json.dumps(document, indent=1, ensure_ascii=False)}\n"
    replace_file(folder.path / "notebook.ipynb", text.encode(), sync=False)
    page = as_page(document, pipeline, record)
    replace_file(folder.path / "notebook.html", page.encode("utf-8", "replace"), sync=False)


def _outputs(pipeline: Pipeline, folder: PipelineFolder) -> dict[int, list[dict[str, Any]]]:
    """The outputs of every cell that ran; a cell of the prelude has those of the first step."""
    found: dict[int, list[dict[str, Any]]] = {}
    for step in pipeline.steps:
        try:
            lines = (folder.results(step.name) / "cells.jsonl").read_bytes().splitlines()
        except OSError:
            continue
        own = {code.cell for code in step.cells}
        for line in lines:
            try:
                told = json.loads(line)
                cell, outputs = int(told["cell"]), [dict(each) for each in told["outputs"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # the step, or the machine, was killed in the middle of it
            if cell in own or cell not in found:
                found[cell] = outputs
    return found


def with_outputs(document: Mapping[str, Any], outputs: Mapping[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """The notebook with these outputs, by the number of their cell, and with no older ones."""
    made = copy.deepcopy(dict(document))
    count = 0
    for number, cell in enumerate(made["cells"], 1):
        if cell.get("cell_type") != "code":
            continue
        cell["outputs"], cell["execution_count"] = [], None
        if number in outputs:
            count += 1
            cell["execution_count"] = count
            for output in outputs[number]:
                if output.get("output_type") == "execute_result":
                    output["execution_count"] = count
                cell["outputs"].append(output)
    return made


def as_page(document: Mapping[str, Any], pipeline: Pipeline, record: PipelineRecord) -> str:
    """One page that needs no other file. What cells show as HTML runs no scripts: nbconvert takes them
    out, and where it is not installed, such HTML is in frames without rights.
    """
    rows = "".join(
        f"<tr><td>{_escape(name)}</td><td>{_escape(step.state)}</td>"
        f"<td>{_seconds(step.started, step.ended)}</td><td>{_escape(step.reason)}</td></tr>"
        for name, step in record.steps.items()
    )
    metrics = {name: value for step in record.steps.values() for name, value in step.metrics.items()}
    numbers = "".join(f"<li>{_escape(name)}: {_escape(str(value))}</li>" for name, value in metrics.items())
    owners = {code.cell: step.name for step in pipeline.steps for code in step.cells}
    heads = {
        number: f"cell {number}{f' · step {_escape(owners[number])}' if number in owners else ''}"
        for number, cell in enumerate(document["cells"], 1)
        if cell.get("cell_type") == "code"
    }
    plain = "".join(_cell(cell, heads.get(number, "")) for number, cell in enumerate(document["cells"], 1))
    cells, style = rendered_cells(document, heads) or (plain, "")
    return (
        f"<!doctype html><html><head><meta charset='utf-8'><title>{_escape(record.name)}</title>"
        f"<style>{_STYLE}\n{style}</style></head><body><h1>{_escape(record.name)}</h1>"
        f"<table><tr><th>step</th><th>state</th><th>took</th><th></th></tr>{rows}</table>"
        f"{f'<ul>{numbers}</ul>' if numbers else ''}{cells}</body></html>\n"
    )


def _cell(cell: Mapping[str, Any], head: str) -> str:
    source = cell.get("source", "")
    text = _escape(source if isinstance(source, str) else "".join(source))
    if cell.get("cell_type") != "code":
        return f"<pre class='out'>{text}</pre>"
    return f"<h2>{head}</h2><pre>{text}</pre>{''.join(map(_output, cell.get('outputs') or ()))}"


def _output(output: Mapping[str, Any]) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        error = " error" if output.get("name") == "stderr" else ""
        return f"<pre class='out{error}'>{_escape(_joined(output.get('text', '')))}</pre>"
    if kind == "error":
        return f"<pre class='out error'>{_escape(_joined(output.get('traceback', ())))}</pre>"
    data = output.get("data") or {}
    for picture in _PICTURES:
        if picture in data:
            return f"<img alt='' src='data:{picture};base64,{_escape(_joined(data[picture]))}'>"
    if "image/svg+xml" in data or "text/html" in data:
        inside = _joined(data.get("text/html") or data["image/svg+xml"])
        return f"<iframe sandbox srcdoc='{html.escape(inside, quote=True)}'></iframe>"
    return f"<pre class='out'>{_escape(_joined(data.get('text/plain', '')))}</pre>"


def _joined(text: str | Iterable[str]) -> str:
    return text if isinstance(text, str) else "".join(map(str, text))


def _escape(text: str) -> str:
    return html.escape(text, quote=True)


def _seconds(started: float | None, ended: float | None) -> str:
    return "" if started is None or ended is None else f"{ended - started:.1f} s"
