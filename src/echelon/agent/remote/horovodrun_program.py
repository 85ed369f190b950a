"""`horovodrun FOLDER [OPTIONS] COMMAND...`: stands before the real `horovodrun` on a launcher's PATH, and
tells it the workers unless the caller does. There is no variable for them, and without a hostfile it starts
all ranks on its own machine."""

from __future__ import annotations

import os
import shutil
import sys

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Sequence

HOSTFILE = "ECHELON_HOSTFILE"
NOT_FOUND = 127  # as a shell's
_NAME_HOSTS = ("-H", "--hosts", "-hostfile", "--hostfile", "--host-discovery-script")


def main(arguments: list[str]) -> int:
    """Become the real horovodrun; returns only where there is none."""
    own, rest = os.path.join(arguments[0], "bin"), arguments[1:]
    path = [part for part in os.environ.get("PATH", "").split(os.pathsep) if part != own]
    real = shutil.which("horovodrun", path=os.pathsep.join(path))
    if real is not None:
        hostfile = os.environ.get(HOSTFILE)
        told = ["--hostfile", hostfile] if hostfile and not names_hosts(rest) else []
        os.execv(real, [real, *told, *rest])  # noqa: S606 - what the user's command asked for
    print("there is no horovodrun here; `echelon run --framework horovod SCRIPT` needs none", file=sys.stderr)
    return NOT_FOUND


def names_hosts(words: Sequence[str]) -> bool:
    """Whether options of horovodrun say where the ranks are to be. Its command begins at the latest with the
    second of two words that are no options: each option has one value or none.
    """
    before = ""
    for word in words:
        if word.partition("=")[0] in _NAME_HOSTS or (word.startswith("-H") and word != "-H"):
            return True
        if before and not word.startswith("-") and not before.startswith("-"):
            return False
        before = word
    return False
