"""How much a keeper can take: what was promised to each worker counts, from its offer on. Pure.

The keeper's folder has a limit that the kubelet enforces by evicting the whole pod, so that a part of it
stays free, and a small file counts as the blocks that it takes. The files that come at the same moment are
bounded, too: each of them needs memory until its whole folder is there."""

from __future__ import annotations

BLOCK = 8192  # bytes that a file takes at most beside its content: its last block, its name
SPARE = 32  # one part in so many stays free
MOST_FILES = 500 * 1000  # that come at the same moment, and that a worker may give at once
PER_FILE = 1500  # bytes of memory that one takes at most while it comes, with a path of 200 characters
TOO_LARGE, TOO_MANY, NO_SPACE = "too-large", "too-many", "no-space"
WHY = {
    TOO_LARGE: "more than fits into the keeper (--keep TIME:SIZE)",
    TOO_MANY: "a keeper takes %d files at once, and no more" % MOST_FILES,
    NO_SPACE: "the disk of the keeper's node is full",
}


class Room:
    """The space of one keeper, of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.most = size - size // SPARE
        self._promised: dict[int, int] = {}
        self._coming = 0  # files

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
        if files > MOST_FILES:
            return TOO_MANY
        if self.promised + beside + need > self.most:
            return TOO_LARGE
        if need > free:
            return NO_SPACE
        self._promised[worker] = need
        return ""

    def enter(self, files: int) -> bool:
        """Whether so many files may come now, beside those that do; they then count until they `leave`."""
        may = self._coming + files <= MOST_FILES
        self._coming += files if may else 0
        return may

    def leave(self, files: int) -> None:
        """These files have come, or come no more."""
        self._coming -= files

    def forget(self, worker: int) -> None:
        """A worker's results did not come after all."""
        self._promised.pop(worker, None)


def space_of(files: int, size: int) -> int:
    """What so many files with so many bytes in all take on a disk, at most."""
    return size + BLOCK * (files + 1)
