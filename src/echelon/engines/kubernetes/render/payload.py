"""What travels with a run in ConfigMaps: the agent, the code, pip's wheel, the requirements.

`load` gathers the bytes when a run is recorded. What is left of them in the record is `Shipped`, the sizes:
from these alone follows which ConfigMaps there are and what is in each, so that starting a run, or a dry run,
needs no bytes. Kubernetes allows a ConfigMap one MiB. Code that is larger than a few of them is sent to
worker 0 when it has started (`files/sending.py`), or lies on a volume."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.record import Shipped
from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.pods.pod import refuse_password
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.bundle import Bundle

PART = 700 << 10
MOST_CODE = 5 << 20  # bytes of code, compressed, that travel in ConfigMaps
_LONGEST = 256 << 10  # characters in a list of packages
_ELSEWHERE = re.compile(
    r"(-[rce]\b|--(requirement|constraint|editable)\b|(-f|--find-links)[\s=]+(?!\w+://)|\.{0,2}/|file:|\.(\s|$|\[)|[^#]*\sfile:)"
)
_MARK = 8  # characters of a digest that tell contents apart
_ROOM = 1_000_000  # bytes in one ConfigMap, with a margin for its names and labels


@frozen
class Payload:
    """The bytes. `code` is the archive of the project, of which `digest` is the sha256; without it, the
    archive lies on a volume under its digest, or is sent: then `sent` is its size.
    """

    agent: bytes
    code: bytes | None = None
    digest: str = ""
    sent: int = 0
    wheel: bytes | None = None
    requirements: bytes | None = None


@frozen
class Piece:
    """One key of a ConfigMap, and which bytes of which part of the payload it holds."""

    key: str
    of: str
    start: int
    size: int


def load(job: Job, bundle: Bundle | None) -> Payload:
    """Gather what must travel for a job. pip's wheel goes along wherever pip is wanted: the client cannot
    know whether the image has it.
    """
    from echelon.bundle.zipapp import pip_wheel
    from echelon.engines.kept_agent import shipped_agent

    wants_pip = bool(job.pod.pip or job.pod.requirements)
    code = None if bundle is None or job.pod.code_volume is not None else bundle.data
    sent = len(code) if code is not None and len(code) > MOST_CODE else 0
    return Payload(
        agent=shipped_agent(),
        code=None if sent else code,
        digest="" if bundle is None else bundle.digest,
        sent=sent,
        wheel=pip_wheel() if wants_pip else None,
        requirements=_requirements(job.pod.requirements),
    )


def weigh(payload: Payload) -> Shipped:
    """What the record keeps of the payload."""
    import hashlib

    rest = hashlib.sha256()
    for part in (payload.agent, payload.wheel, payload.requirements):
        rest.update(hashlib.sha256(part or b"").digest())
    return Shipped(
        agent=len(payload.agent),
        code=len(payload.code or b""),
        wheel=len(payload.wheel or b""),
        requirements=len(payload.requirements or b""),
        digest=payload.digest,
        rest=rest.hexdigest(),
        sent=payload.sent,
    )


def layout(shipped: Shipped) -> list[list[Piece]]:
    """Which pieces stand in which ConfigMap, in order; the agent is in the first."""
    maps: list[list[Piece]] = []
    room = 0
    for piece in _pieces(shipped):
        if not maps or piece.size > room:
            maps.append([])
            room = _ROOM
        maps[-1].append(piece)
        room -= piece.size
    return maps


def map_names(run: str, shipped: Shipped) -> list[str]:
    """What the ConfigMaps are called."""
    import hashlib

    content = hashlib.sha256(f"{shipped.digest} {shipped.rest}".encode()).hexdigest()[:_MARK]
    return [names.bundle_name(run, number, content) for number in range(len(layout(shipped)))]


def parts(size: int) -> int:
    """How many parts something of that size is cut into."""
    return -(-size // PART)


def content(payload: Payload, piece: Piece) -> bytes:
    """The bytes of a piece."""
    whole: bytes = getattr(payload, piece.of)
    return whole[piece.start : piece.start + piece.size]


def _pieces(shipped: Shipped) -> Iterator[Piece]:
    yield Piece(key=names.AGENT_KEY, of="agent", start=0, size=shipped.agent)
    if shipped.requirements:
        yield Piece(key=names.REQUIREMENTS_KEY, of="requirements", start=0, size=shipped.requirements)
    for of, size, name in (
        ("code", shipped.code, names.part_key),
        ("wheel", shipped.wheel, names.wheel_key),
    ):
        for number in range(parts(size)):
            start = number * PART
            yield Piece(key=name(number), of=of, start=start, size=min(PART, size - start))


def _requirements(path: str | None) -> bytes | None:
    """The file's bytes; it must stand alone, for nothing that lies beside it goes along."""
    if path is None or path.startswith("{code}"):  # among the code that is shipped
        return None
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        hint = "name a file that lists packages, as pip reads it"
        raise InvalidJob("requirements", path, f"cannot be read: {reason}", hint=hint) from None
    if not text.strip():
        raise InvalidJob("requirements", path, "is empty", hint="leave it out, or list packages in it")
    if len(text) > _LONGEST:
        raise InvalidJob("requirements", path, "is too large for a list of packages", hint="check the path")
    for line in text.splitlines():
        refuse_password("requirements", line)
        if _ELSEWHERE.match(line.strip()):
            hint = "write what it names into the file itself; code goes along as part of the project"
            raise InvalidJob("requirements", line.strip(), "names a file that does not travel", hint=hint)
    return text.encode()
