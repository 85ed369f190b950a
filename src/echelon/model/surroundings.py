"""Where a command was given: what a submission may depend on besides its settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from echelon.values import frozen


@frozen
class Surroundings:
    """The working folder, absolute, and the environment."""

    folder: Path
    environment: Mapping[str, str]
