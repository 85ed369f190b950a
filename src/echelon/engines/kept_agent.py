"""The agent's archive, kept in the state folder under the digest of its sources: to compress it takes longer
than all else that a submission computes. The kept one has bytecode, too, which takes longer still, and with
which pods start sooner. A state folder that cannot be written costs only that time."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from echelon.agent.pyz import bytecode_name
from echelon.bundle.zipapp import agent_sources, archive_of
from echelon.engines import durable
from echelon.errors import StateTrouble
from echelon.state_home import state_home

_KEPT = 30 * 86400.0  # seconds that archives are kept
_looking = threading.Lock()


def agent_archive() -> bytes:
    """The archive, found or made once per process; nothing is written."""
    return _look()[0]


@cache
def keep_agent() -> None:
    """Have an archive with bytecode kept for later processes, if this one found none: in a thread, which this
    process does not end without.
    """
    missing = _look()[1]
    if missing is not None:
        threading.Thread(target=_keep, args=(missing,), name="keeping the agent").start()


def _keep(missing: Path) -> None:
    from echelon.bundle.bytecode import compile_start

    sources = agent_sources()
    archive = archive_of({**sources, bytecode_name(): compile_start(sources)})
    with suppress(OSError):
        durable.make_folder(missing.parent)
        durable.forget_older(missing.parent, _KEPT)
        durable.replace_file(missing, hashlib.sha256(archive).digest() + archive, sync=False)


def _look() -> tuple[bytes, Path | None]:
    with _looking:
        return _look_once()


@cache
def _look_once() -> tuple[bytes, Path | None]:
    """The archive, and where it is to be kept, if it is not there."""
    sources = agent_sources()
    try:
        path = state_home() / "agents" / f"{_digest(sources)}-{Path(bytecode_name()).name}.pyz"
    except StateTrouble:
        return archive_of(sources), None
    found = _read(path)
    return (archive_of(sources), path) if found is None else (found, None)


def _digest(sources: Mapping[str, bytes]) -> str:
    together = hashlib.sha256()
    for name in sorted(sources):
        together.update(f"{name}\0{len(sources[name])}\0".encode())
        together.update(sources[name])
    return together.hexdigest()


def _read(path: Path) -> bytes | None:
    """The archive of a file, which begins with its digest; None where there is none, it is damaged, or
    another user may have written it.
    """
    with suppress(OSError), path.open("rb") as file:
        about, content = os.fstat(file.fileno()), file.read()
        size = hashlib.sha256().digest_size
        own = about.st_uid == os.geteuid() and not about.st_mode & 0o022
        if own and hashlib.sha256(content[size:]).digest() == content[:size]:
            return content[size:]
    return None
