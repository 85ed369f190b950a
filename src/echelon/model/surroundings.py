"""Where a command was given: what a submission may depend on besides its settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from echelon.values import frozen


@frozen
class Surroundings:
    """The working folder, absolute, the environment, and the cores of this machine that may be used."""

    folder: Path
    environment: Mapping[str, str]
    cores: int | None = None
