"""What the state folder keeps of a run that is over: less than while it went on.

Each rank's output is whole among the results; the agents' output here, with the time and the rank of each
line, is compressed. The copy of the project is deleted, and, once nothing is left to resume, the archive that
it came in, unless it is small: by that, runs are compared. Each step is complete or undone wherever the
process is killed: a compressed file gets its name when it is whole, and readers take either file."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
from pathlib import Path

from echelon.engines import durable, machine
from echelon.engines.local.folder.rundir import RunDir, compressed

_WORTH_IT = 64 * 1024  # bytes; a smaller file stays as it is
_LEVEL = 1  # output compresses well at any level, and this one takes a fifth of the time


def compact(folder: RunDir, *, succeeded: bool) -> None:
    """Drop and compress what an ended run does not need any more. What cannot be is left as it is."""
    with contextlib.suppress(OSError):
        for _worker, _failures, path in folder.worker_logs():
            if path.is_file() and path.stat().st_size >= _WORTH_IT:
                _compress(path)
    shutil.rmtree(folder.code, ignore_errors=True)
    if succeeded:
        with contextlib.suppress(OSError):
            if folder.bundle.stat().st_size > machine.SMALL_CODE:
                folder.bundle.unlink()


def _compress(path: Path) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with path.open("rb") as whole, gzip.open(temporary, "wb", compresslevel=_LEVEL) as packed:
            shutil.copyfileobj(whole, packed, 1024 * 1024)
        temporary.chmod(0o600)
        durable.sync_file(temporary)  # it is whole before the other one is gone, a power cut included
        durable.move_file(temporary, compressed(path))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    path.unlink()
