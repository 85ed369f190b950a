"""What this machine keeps for itself: the runs that it submitted elsewhere, and the claims that it made.

A cluster's record does not contain where results belong on the machine that submitted the run: that is a path
of this machine alone. The same note decides whether this machine may tend a run, and another one whether it
has fetched the results: others may write into the record."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache
from pathlib import Path

from echelon.engines import durable
from echelon.errors import StateTrouble
from echelon.state_home import state_home
from echelon.values import frozen

_UID = re.compile(r"[0-9a-zA-Z-]{1,64}")
_START = "start-"  # how the file of an earlier start goes on after the run's uid
SMALL_CODE = 256 * 1024  # bytes of an archive; what is larger is not kept once its run has succeeded
_RAN = "ran.tar.gz"  # how that of the code goes on once the run has succeeded
_SAFE = "safe.json"  # how the file goes on that has its safe checkpoints
_KEPT = 90 * 86400.0  # seconds that a run is remembered: longer than any record lives


@frozen
class Fetched:
    """Results that were brought to a folder of this machine, and checked; no path if there were none.
    `missing` is what was lost before: a sentence for each worker.
    """

    path: str = ""
    missing: tuple[str, ...] = ()


@frozen
class SafeCheckpoints:
    """The safe checkpoints of a run that were brought to the folder `path`, as its keeper has stated them: by
    worker and name the version of its part, the mark of all parts and their time (`Event.parts`).
    """

    path: str
    parts: Mapping[int, Mapping[str, tuple[str, str, int]]] = field(default_factory=dict)


class Submissions:
    """The runs that this machine submitted to a cluster, by the uid of their records.

    A state folder that cannot be written costs no run: then only this process remembers."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}
        self._code: dict[str, bytes] = {}  # what could not be written
        self._fetched: dict[str, tuple[float, Fetched]] = {}
        self._safe: dict[str, SafeCheckpoints] = {}

    def remember(self, uid: str, results: Path) -> None:
        """Note where the results of a run belong."""
        self._own[uid] = str(results)
        with suppress(OSError, StateTrouble):
            folder = state_home() / "submitted"
            durable.make_folder(folder)
            durable.forget_older(folder, _KEPT)
            durable.replace_file(_file(folder, uid), json.dumps({"results": str(results)}).encode())

    def results_of(self, uid: str) -> Path | None:
        """Where the results of a run belong; None if this machine did not submit it."""
        if uid in self._own:
            return Path(self._own[uid])
        with suppress(OSError, StateTrouble, ValueError, KeyError, TypeError, RecursionError):
            return Path(json.loads(_file(state_home() / "submitted", uid).read_text("utf-8"))["results"])
        return None

    def note_fetched(self, uid: str, created: float, fetched: Fetched) -> None:
        """Note that the results of a run are on this machine, as far as there are any: what the cluster says
        of that, others may have written. A run that is resumed has another time of creation.
        """
        self._fetched[uid] = created, fetched
        with suppress(OSError, StateTrouble, ValueError):
            folder = state_home() / "submitted"
            durable.make_folder(folder)
            note = {"created": created, "path": fetched.path, "missing": fetched.missing}
            durable.replace_file(_file(folder, uid, "fetched.json"), json.dumps(note).encode())

    def fetched(self, uid: str, created: float) -> Fetched | None:
        """What of the results of a run is on this machine; None if they were not fetched to it."""
        at, note = self._fetched.get(uid, (None, None))
        with suppress(OSError, StateTrouble, ValueError, KeyError, TypeError, RecursionError):
            kept = json.loads(_file(state_home() / "submitted", uid, "fetched.json").read_text("utf-8"))
            at, note = kept["created"], Fetched(path=kept["path"], missing=tuple(kept["missing"]))
        return note if at == created else None

    def forget_fetched(self, uid: str) -> None:
        """The run is resumed: what it makes from now on was not fetched."""
        self._fetched.pop(uid, None)
        with suppress(OSError, StateTrouble, ValueError):
            _file(state_home() / "submitted", uid, "fetched.json").unlink(missing_ok=True)

    def note_safe(self, uid: str, safe: SafeCheckpoints) -> None:
        """Note which checkpoints of a run came home. A later start that has brought none changes nothing."""
        self._safe[uid] = safe
        with suppress(OSError, StateTrouble, ValueError):
            folder = state_home() / "submitted"
            durable.make_folder(folder)
            note = {"path": safe.path, "parts": safe.parts}
            durable.replace_file(_file(folder, uid, _SAFE), json.dumps(note).encode())

    def safe_of(self, uid: str) -> SafeCheckpoints | None:
        """Which checkpoints of a run came home last; None if nothing is known of that."""
        with suppress(OSError, StateTrouble, ValueError, KeyError, TypeError, RecursionError, AttributeError):
            kept = json.loads(_file(state_home() / "submitted", uid, _SAFE).read_text("utf-8"))
            parts = {
                int(worker): {name: (version, mark, at) for name, (version, mark, at) in each.items()}
                for worker, each in kept["parts"].items()
            }
            return SafeCheckpoints(path=kept["path"], parts=parts)
        return self._safe.get(uid)

    def keep_code(self, uid: str, code: bytes) -> None:
        """Keep the code that was shipped for a run: its copy in the cluster is deleted when it ends, and the
        run may be resumed.
        """
        try:
            durable.replace_file(_file(state_home() / "submitted", uid, "tar.gz"), code, sync=False)
        except (OSError, StateTrouble, ValueError):
            self._code[uid] = code

    def code_of(self, uid: str) -> bytes | None:
        """The code that was shipped for a run; None where this machine does not have it."""
        with suppress(OSError, StateTrouble, ValueError):
            return _file(state_home() / "submitted", uid, "tar.gz").read_bytes()
        return self._code.get(uid)

    def forget_code(self, uid: str) -> None:
        """The run has succeeded: nothing of it is resumed. What is small stays, to be compared."""
        self._code.pop(uid, None)
        with suppress(OSError, StateTrouble, ValueError):
            folder = state_home() / "submitted"
            code = _file(folder, uid, "tar.gz")
            if code.stat().st_size > SMALL_CODE:
                code.unlink()
            else:
                code.replace(_file(folder, uid, _RAN))

    def code_that_ran(self, uid: str) -> bytes | None:
        """The code that was shipped for a run, also of one that has succeeded; None where this machine does
        not have it.
        """
        with suppress(OSError, StateTrouble, ValueError):
            return _file(state_home() / "submitted", uid, _RAN).read_bytes()
        return self.code_of(uid)

    def keep_start(self, uid: str, created: float, lines: Iterable[bytes]) -> None:
        """Keep what a run that is being resumed has done since `created`; doing it again changes nothing."""
        with suppress(OSError, StateTrouble, ValueError):
            path = _file(state_home() / "submitted", uid, _start_name(created))
            temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            try:
                with temporary.open("wb") as file:
                    file.writelines(lines)
                temporary.chmod(0o600)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def earlier_starts(self, uid: str, created: float) -> Iterator[bytes]:
        """What was kept of a run's starts, line by line, the oldest first; but of the one since `created`: a
        resumption of that was cut off.
        """
        for path in self._starts(uid):
            if not path.name.endswith(_start_name(created)):
                with suppress(OSError), path.open("rb") as file:
                    yield from file

    def _starts(self, uid: str) -> list[Path]:
        with suppress(OSError, StateTrouble, ValueError):
            folder = _file(state_home() / "submitted", uid).parent
            return sorted(folder.glob(f"{uid}.{_START}*.jsonl"))
        return []

    def forget(self, uid: str) -> None:
        """The run is removed."""
        self._own.pop(uid, None)
        for path in self._starts(uid):
            path.unlink(missing_ok=True)
        self.forget_fetched(uid)
        self._code.pop(uid, None)
        self._safe.pop(uid, None)
        with suppress(OSError, StateTrouble, ValueError):
            for ending in ("tar.gz", _RAN, _SAFE, "json"):
                _file(state_home() / "submitted", uid, ending).unlink(missing_ok=True)


class OwnClaims:
    """The volume claims that this machine has made in a cluster and that no run has, by their uids."""

    def remember(self, uid: str, name: str) -> None:
        """Note that a claim was made here. A state folder that cannot be written costs no more than that."""
        with suppress(OSError, StateTrouble, ValueError):
            folder = state_home() / "claims"
            durable.make_folder(folder)
            durable.replace_file(_file(folder, uid), json.dumps({"name": name}).encode())

    def has(self, uid: str) -> bool:
        """Whether a claim was made here."""
        with suppress(OSError, StateTrouble, ValueError):
            return _file(state_home() / "claims", uid).is_file()
        return False

    def forget(self, uid: str) -> None:
        """It is removed."""
        with suppress(OSError, StateTrouble, ValueError):
            _file(state_home() / "claims", uid).unlink(missing_ok=True)


@cache
def process_name() -> str:
    """A name of this process that no other process of any machine has: who reads it knows the host, and
    whether a process of that number here is meant.
    """
    return f"{os.uname().nodename}/{_processes_here()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


@cache
def _processes_here() -> str:
    """What has the numbers of these processes: a machine since its start and, on it, a container. Hosts may
    have the same name; and containers of one machine have the same, if their names are given.
    """
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        known = f"{start} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # another system, without containers
        known = f"{uuid.getnode():x}"
    return hashlib.sha256(known.encode()).hexdigest()[:12]


def describe_process(name: str) -> str:
    """A process by the name that `process_name` gave it, for a message."""
    host, *_, number, _own = name.split("/") if name.count("/") > 2 else (name, "", "")
    return f"process {number} on {host}" if number.isdecimal() else host


def is_dead_process(name: str) -> bool:
    """Whether a name that `process_name` gave is that of a process of this machine which has ended."""
    where, _, number = name.rpartition("/")[0].rpartition("/")
    if where.rpartition("/")[2] != _processes_here() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _start_name(created: float) -> str:
    return f"{_START}{created * 1000:015.0f}.jsonl"


def _file(folder: Path, uid: str, ending: str = "json") -> Path:
    if not _UID.fullmatch(uid):  # it comes from the cluster, and becomes a path
        raise ValueError(uid)
    return folder / f"{uid}.{ending}"
