"""Where a command was given: what a submission may depend on besides its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The working folder, absolute, and the environment."""

    folder: Path
    environment: Mapping[str, str]
