"""How much a keeper can take: what was promised to each worker counts, from its offer on. Pure.

The keeper's folder has a limit that the kubelet enforces by evicting the whole pod, so that a part of it
stays free, and a small file counts as the blocks that it takes."""

from __future__ import annotations

BLOCK = 8192  # bytes that a file takes at most beside its content: its last block, its name
SPARE = 32  # one part in so many stays free
TOO_LARGE, NO_SPACE = "too-large", "no-space"


class Room:
    """The space of one keeper, of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.most = size - size // SPARE
        self._promised: dict[int, int] = {}

    @property
    def promised(self) -> int:
        """What all workers together were promised."""
        return sum(self._promised.values())

    def refuse(self, worker: int, files: int, size: int, free: int, beside: int = 0) -> str:
        """Why a worker's results do not fit, beside what others were promised, `beside` what else is there,
        and on a disk with so many bytes free; "" if they do, and have their place. An earlier offer of the
        same worker is forgotten.
        """
        self.forget(worker)
        need = space_of(files, size)
        if self.promised + beside + need > self.most:
            return TOO_LARGE
        if need > free:
            return NO_SPACE
        self._promised[worker] = need
        return ""

    def forget(self, worker: int) -> None:
        """A worker's results did not come after all."""
        self._promised.pop(worker, None)


def space_of(files: int, size: int) -> int:
    """What so many files with so many bytes in all take on a disk, at most."""
    return size + BLOCK * (files + 1)
