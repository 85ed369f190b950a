"""What there is to copy, copies that go on, how far one has come, and its outcome."""

from __future__ import annotations

from typing import Literal

from echelon.values import frozen


@frozen
class OpenCopy:
    """A copy to or from a volume that goes on: what keeps the volume in use, and who began it when."""

    name: str
    volume: str
    writes: bool  # to the volume; else from it
    owner: str
    created: float
    state: Literal["starting", "running"]
    kind: Literal["copy"] = "copy"  # among the rows of `ps` as data


@frozen
class Manifest:
    """What a tree holds: its files, their bytes, and a digest of its listing (`agent/files/manifest.py`).
    Without a digest nothing was there.
    """

    files: int
    size: int
    digest: str
    root: str = ""  # where the tree is in its pod
    worker: int | None = None


@frozen
class Progress:
    """How far a copy has come; `trouble` is what it waits for, if anything."""

    done: int = 0
    total: int = 0
    files_done: int = 0
    files: int = 0
    trouble: str = ""


@frozen
class LeftOut:
    """A file that could not be copied."""

    path: str
    why: str


@frozen
class Copied:
    """The outcome of a copy. `changed` names files that were written to all the while they were read;
    `left_out` is all that was not copied, `failed` the part of it that was listed and then did not come.
    """

    target: str
    files: int
    size: int
    there: int  # of the files: those that were in their place before
    left_out: tuple[LeftOut, ...] = ()
    changed: tuple[str, ...] = ()
    failed: tuple[LeftOut, ...] = ()
    manifest: Manifest | None = None  # of the listing that was copied; None of a copy to a pod
