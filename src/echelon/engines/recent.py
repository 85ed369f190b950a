"""Which runs were started from a folder of this machine, so that a command without a name means the newest.

One small file for each run, below a folder for each working folder: several processes may write at once, and
nothing is read to write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from echelon.engines import durable
from echelon.errors import StateTrouble
from echelon.state_home import state_home

_KEPT = 90 * 86400.0  # seconds that a run is remembered


def note_started(uri: str) -> None:
    """Remember that a run was started from the working folder. A state folder that cannot be written costs no
    run.
    """
    with suppress(OSError, StateTrouble):
        folder = Path.cwd()
        place = _place_of(folder)
        durable.make_folder(place)
        durable.forget_older(place, _KEPT)
        content = json.dumps({"uri": uri, "folder": str(folder)}).encode()
        durable.replace_file(place / f"{_short(uri)}.json", content, sync=False)


def started_from(folder: Path) -> Iterator[str]:
    """The runs that were started from a folder, the newest first; some may be gone by now."""
    try:
        files = [(path.stat().st_mtime_ns, path) for path in _place_of(folder).glob("*.json")]
    except (OSError, StateTrouble):
        return
    for _at, path in sorted(files, reverse=True):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            found = json.loads(path.read_bytes())
            if found["folder"] == str(folder) and isinstance(found["uri"], str):
                yield found["uri"]


def started_in(uri: str) -> Path | None:
    """The folder from which a run was started last; None if this machine did not start it, or the folder is
    gone.
    """
    try:
        files = [(path.stat().st_mtime_ns, path) for path in _home().glob(f"*/{_short(uri)}.json")]
    except (OSError, StateTrouble):
        return None
    for _at, path in sorted(files, reverse=True):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            found = json.loads(path.read_bytes())
            if found["uri"] == uri and Path(found["folder"]).is_dir():
                return Path(found["folder"])
    return None


def _home() -> Path:
    return state_home() / "started"


def _place_of(folder: Path) -> Path:
    return _home() / _short(str(folder))


def _short(text: str) -> str:
    import hashlib  # it loads OpenSSL: not before a run is started

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]
