"""Hangs of real ranks with NCCL, as the agent looks at them, on a machine with one GPU and torch:
`PYTHONPATH=src:. python -m tests.agent.gang.hangs.record_gpu FOLDER` writes them as JSON files, and prints
the verdict on each, with how busy the ranks are meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.agent.gang.hangs.record import HERE, settled_look
from tests.agent.gang.recording import ranks_of

from echelon.agent.gang import hang
from echelon.agent.ranks.processes import stat_of

WAYS = ("asleep", "sizes", "order")
_WATCHED = 3.0  # seconds
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    wanted = Path(sys.argv[1])
    for way in WAYS:
        with (
            tempfile.TemporaryDirectory() as folder,
            ranks_of(HERE / "hang_gpu.py", way, 2, Path(folder), {"NCCL_DEBUG": "WARN"}) as started,
        ):
            for process in started:
                assert process.stdout is not None
                line = b"-"
                while line not in (b"waits\n", b""):
                    line = process.stdout.readline()
                    if line != b"waits\n":
                        print(way, line.decode().rstrip(), flush=True)
            time.sleep(2)
            alive = {rank: each.pid for rank, each in enumerate(started) if each.poll() is None}
            before = {rank: _seconds(pid) for rank, pid in alive.items()}
            time.sleep(_WATCHED)
            busy = {rank: round((_seconds(pid) - before[rank]) / _WATCHED, 2) for rank, pid in alive.items()}
            looks = settled_look(alive, Path(folder))
        (wanted / f"nccl-{way}-2.json").write_text(
            json.dumps(looks, sort_keys=True).replace('}}}, "', '}}},\n"')
        )
        found = hang.verdict({int(rank): look for rank, look in looks.items()})
        print(f"{way}: cores {busy}: {found.kind}: {found.sentence}", *found.lines, sep="\n  ", flush=True)


def _seconds(pid: int) -> float:
    return sum(int(field) for field in stat_of(pid)[11:13]) / _TICKS


if __name__ == "__main__":
    main()
