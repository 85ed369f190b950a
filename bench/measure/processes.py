"""What the system knows of a process: its memory and its time on a processor. Linux only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MEGABYTE = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """In MB (10^6 bytes). `shared_out` counts a page that several processes hold only for its part (PSS)."""

    resident: float
    shared_out: float


def memory_of(pid: int) -> Memory:
    """What a process holds now."""
    fields = _kilobytes(Path(f"/proc/{pid}/smaps_rollup"))
    return Memory(resident=fields["Rss"], shared_out=fields["Pss"])


def peak_of(pid: int) -> float:
    """The most that a process has held at any time, in MB."""
    return _kilobytes(Path(f"/proc/{pid}/status"))["VmHWM"]


def processor_time_of(pid: int, *, children: bool = False) -> float:
    """Seconds that the process's first thread (the only one of an agent) has run, with `children` those too
    of its children that have ended.
    """
    own = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = sum(int(field) for field in fields[13:15]) / os.sysconf("SC_CLK_TCK")
    return own + ended if children else own


def _kilobytes(path: Path) -> dict[str, float]:
    found = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if words[-1:] == ["kB"]:
            found[words[0].rstrip(":")] = int(words[1]) * 1024 / _MEGABYTE
    return found
