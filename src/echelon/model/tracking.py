"""The experiment tracker that a run's metrics are forwarded to."""

from __future__ import annotations

from typing import Literal, get_args

from echelon.errors import InvalidJob
from echelon.values import frozen

Tracker = Literal["mlflow", "tensorboard"]
TRACKERS: tuple[Tracker, ...] = get_args(Tracker)
OFF = "none"
"""Said where a project's default is not wanted."""
_WANDB = (
    "Weights & Biases documents no interface but its own package, which starts programs of its own; call "
    "wandb.init() in the script: echelon passes WANDB_API_KEY on (--secret WANDB_API_KEY)"
)


@frozen
class Tracking:
    """Where the metrics go, and what only the submission knows: the commit of the project, and whether files
    differed from it. `began` is when the run was first recorded, of one that was resumed.
    """

    to: Tracker
    commit: str = ""
    changed: bool = False
    began: float = 0.0


def parse_tracker(text: str) -> Tracker | None:
    """The tracker that a setting names; None for `none`. Raises InvalidJob."""
    for each in TRACKERS:
        if text == each:
            return each
    if text == OFF:
        return None
    hint = _WANDB if text == "wandb" else f"one of {', '.join((*TRACKERS, OFF))}"
    raise InvalidJob("track", text, "is not a tracker that echelon can forward to", hint=hint)
