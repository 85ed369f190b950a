"""How far a training has come, as the output of one of its ranks tells, and how people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

from echelon.model.display import duration
from echelon.values import frozen


@frozen
class Progress:
    """How far a rank's training has come. What its output does not tell is None.

    `steps` are those of an epoch, or of the whole run; `done` (0 to 1) and `left` (seconds) are of the run,
    or, where only that is known, of the epoch: `of` says which. `metrics` are those that the rank printed
    last, a loss first."""

    rank: int
    at: float  # when the rank printed it
    step: int | None = None
    steps: int | None = None
    epoch: float | None = None
    epochs: int | None = None
    done: float | None = None
    of: Literal["run", "epoch"] = "run"
    rate: float | None = None  # steps a second
    left: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def at_end(progress: Progress) -> Progress:
    """How far a run had come that is over: there is no speed, nor time left."""
    return replace(progress, rate=None, left=None)


_MOST_METRICS = 3  # that are written


def words(progress: Progress) -> list[str]:
    """A progress in short phrases, the most important first: `epoch 3/10`, `120/1875`, `21%`, `310/s`,
    `1 m 5 s left`, `loss 0.31`.
    """
    found = []
    if progress.epoch is not None:
        of = "" if progress.epochs is None else f"/{progress.epochs}"
        found.append(f"epoch {progress.epoch:.6g}{of}")
    if progress.step is not None:
        found.append(
            f"step {progress.step}" if progress.steps is None else f"{progress.step}/{progress.steps}"
        )
    if progress.done is not None:
        found.append(f"{int(progress.done * 100 + 1e-6)}%")
    if progress.rate:
        rate, unit = (progress.rate, "s") if progress.rate >= 1 else (progress.rate * 60, "min")
        found.append(f"{rate:.3g}/{unit}" if rate < 1000 else f"{rate:.0f}/{unit}")
    if progress.left is not None:
        of = " of the epoch" if progress.of == "epoch" else ""
        found.append(f"{_about(progress.left)} left{of}")
    found += [f"{name} {value:.4g}" for name, value in list(progress.metrics.items())[:_MOST_METRICS]]
    return found


def _about(seconds: float) -> str:
    """A time that is an estimate: no parts of a second."""
    return f"{seconds:.0f} s" if seconds < 60 else duration(seconds)
