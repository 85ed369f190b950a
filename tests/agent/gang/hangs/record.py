"""Hangs of real ranks, as the agent looks at them: `python -m tests.agent.gang.hangs.record` writes the JSON
files beside this one again, which the test of the verdict reads; with names (`asleep-2`) those alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.agent.gang.recording import look_of, ranks_of

from echelon.agent.gang.hang import state_of
from echelon.agent.loop import Loop
from echelon.agent.ranks.stuck import looking

HERE = Path(__file__).parent
WAYS = ("asleep", "computes", "reads", "order", "groups", "part", "stopped", "start")
PART = "/data/part-17"
_SETTLED = 2.0  # seconds after the last rank has said that it waits now, and between two looks
_MOST_LOOKS = 20


def record(way: str, ranks: int, folder: Path) -> dict[str, dict[str, Any]]:
    """Start ranks that hang in this way, and look at them."""
    part = folder / "part-17"
    if not part.exists():
        os.mkfifo(part)
    writer = os.open(part, os.O_RDWR)
    try:
        with ranks_of(HERE / "hang.py", way, ranks, folder, {"PART": str(part)}) as started:
            for process in started:
                assert process.stdout is not None
                while process.stdout.readline() not in (b"waits\n", b""):
                    pass
            time.sleep(_SETTLED)
            alive = {rank: each.pid for rank, each in enumerate(started) if each.poll() is None}
            return settled_look(alive, folder)
    finally:
        os.close(writer)


def settled_look(alive: dict[int, int], folder: Path) -> dict[str, dict[str, Any]]:
    """The first look that is like the one before it: on a busy machine ranks are still on their way."""
    looks = _look(alive, folder)
    for _ in range(_MOST_LOOKS):
        time.sleep(_SETTLED)
        before, looks = looks, _look(alive, folder)
        if _state(before) == _state(looks):
            break
    return looks


def _state(looks: dict[str, dict[str, Any]]) -> object:
    return state_of({int(rank): look for rank, look in looks.items()})


def _look(pids: dict[int, int], folder: Path) -> dict[str, dict[str, Any]]:
    loop = Loop()
    found: list[dict[str, dict[str, Any]]] = []
    asked = {rank: (pid, look_of(folder, rank)) for rank, pid in pids.items()}
    looking.look(loop, asked, lambda answers: (found.append(answers), loop.stop()))
    loop.run()
    loop.close()
    return found[0]


def main() -> None:
    import tempfile

    wanted = [(way, ranks) for way in WAYS for ranks in (2, 4)] + [("asleep", 8), ("groups", 8)]
    for way, ranks in wanted:
        if sys.argv[1:] and f"{way}-{ranks}" not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            text = json.dumps(record(way, ranks, Path(folder)), indent=None, sort_keys=True)
            text = text.replace(f"{folder}/part-17", PART).replace('}, "', '},\n"')
            (HERE / f"{way}-{ranks}.json").write_text(text + "\n")
            print(way, ranks, len(text), flush=True)


if __name__ == "__main__":
    main()
