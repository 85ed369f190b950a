"""One line of a check-up (`echelon doctor`), the same for a machine and a cluster."""

from __future__ import annotations

from typing import Literal

from echelon.values import frozen


@frozen
class Finding:
    """What was looked at and found: `fix` is what does not work without it, and what to do."""

    level: Literal["ok", "degraded", "missing"]
    what: str
    found: str
    fix: str = ""
