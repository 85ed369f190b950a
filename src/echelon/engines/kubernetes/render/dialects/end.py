"""How a controller ended the objects that it made a run's pods from: one value for all dialects."""

from __future__ import annotations

from typing import Literal

from echelon.values import frozen


@frozen
class End:
    """How the controller ended a run's objects; not `final` while some of their pods still leave."""

    outcome: Literal["complete", "failed"]
    reason: str = ""
    message: str = ""
    at: float = 0.0
    final: bool = True
