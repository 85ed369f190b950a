"""The pipeline runs that this machine has started, by name, and where their folders are: one whose steps all
came from the cache, or whose first step was refused, has no run of any engine's.

One small file for each, below the state folder. What is noted of a folder that is gone counts for nothing."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from echelon.engines import durable
from echelon.errors import EchelonError, StateTrouble
from echelon.notebook.kept.folder import PipelineFolder, PipelineRecord, is_held, read_record
from echelon.state_home import state_home
from echelon.values import frozen

_KEPT = 90 * 86400.0  # seconds that a pipeline run is remembered


@frozen
class Noted:
    """A pipeline run of this machine: its folder, and its record as it is now."""

    folder: PipelineFolder
    record: PipelineRecord
    held: bool = False  # whether a command runs its steps


def note_pipeline(folder: PipelineFolder) -> None:
    """Remember where a pipeline run is. A state folder that cannot be written costs no run."""
    with suppress(OSError, StateTrouble):
        place = _place()
        durable.make_folder(place)
        for entry in place.iterdir():
            if time.time() - entry.stat().st_mtime > _KEPT:
                entry.unlink(missing_ok=True)
        content = json.dumps({"folder": str(folder.path)}).encode()
        durable.replace_file(place / f"{folder.name}.json", content, sync=False)


def forget_pipeline(name: str) -> None:
    """The pipeline run is removed; its folder stays."""
    with suppress(OSError, StateTrouble):
        (_place() / f"{name}.json").unlink(missing_ok=True)


def noted(name: str) -> Noted | None:
    """The pipeline run of that name; None if this machine knows of none, or its folder is gone."""
    folder = noted_folder(name)
    if folder is None:
        return None
    with suppress(OSError, EchelonError, RecursionError):
        held = is_held(folder)  # before the record: of one that is over, that is the last one
        record = read_record(folder)
        return Noted(folder=folder, record=record, held=held) if record.name == name else None
    return None


def noted_folder(name: str) -> PipelineFolder | None:
    """Where the pipeline run of that name is, or was."""
    if Path(name).name != name:  # an address, perhaps
        return None
    with suppress(OSError, StateTrouble, ValueError, KeyError, TypeError, RecursionError):
        return PipelineFolder(Path(json.loads((_place() / f"{name}.json").read_bytes())["folder"]))
    return None


def is_noted_held(name: str) -> bool:
    """Whether a command runs steps of the pipeline run of that name: its record need not be read for that."""
    folder = noted_folder(name)
    return folder is not None and is_held(folder)


def noted_names() -> list[str]:
    """The names of all that this machine has started, in no order."""
    try:
        return [path.stem for path in _place().glob("*.json")]
    except (OSError, StateTrouble):
        return []


def noted_pipelines() -> list[Noted]:
    """All of them, in no order."""
    return [found for name in noted_names() if (found := noted(name)) is not None]


def _place() -> Path:
    return state_home() / "pipelines"
