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


def shipped_agent() -> bytes:
    """The archive as pods get it, found or made once per process; nothing is written."""
    return _look()[0]


@cache
def keep_agent() -> None:
    """Have an archive with bytecode kept for later processes, if this one found none: in a thread, which this
    process does not end without.
    """
    if not _look()[1]:
        threading.Thread(target=_keep, name="keeping the agent").start()


def _keep() -> None:
    from echelon.bundle.zipapp import compile_start

    sources = agent_sources()
    archive = archive_of({**sources, bytecode_name(): compile_start(sources)})
    with suppress(OSError, StateTrouble):
        path = _place_of(sources)
        durable.make_folder(path.parent)
        durable.forget_older(path.parent, _KEPT)
        durable.replace_file(path, hashlib.sha256(archive).digest() + archive, sync=False)


def _look() -> tuple[bytes, bool]:
    with _looking:
        return _look_once()


@cache
def _look_once() -> tuple[bytes, bool]:
    """The archive, and whether it was kept."""
    sources = agent_sources()
    with suppress(StateTrouble):
        if (found := _read(_place_of(sources))) is not None:
            return found, True
    return archive_of(sources), False


def _place_of(sources: Mapping[str, bytes]) -> Path:
    return state_home() / "agents" / f"{_digest(sources)}-{Path(bytecode_name()).name}.pyz"


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
