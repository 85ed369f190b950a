"""What real ranks tell of their collectives, asked twice: `python -m tests.agent.gang.late.record` writes the
JSON files beside this one again, which the test of lateness reads; with names (`asleep-4`) those alone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from echelon.agent.loop import Loop
from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.stuck import looking, recorder

HERE = Path(__file__).parent
WAYS = ("asleep", "even", "loads", "buckets", "group")
BETWEEN = 4.0  # seconds between the questions


def record(way: str, ranks: int, folder: Path) -> list[dict[str, dict[str, Any]]]:
    """Start ranks that train in this way, and ask them twice."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "PYTHONPATH": launch.STARTUP,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "ECHELON_RANKS": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    started = []
    try:
        for rank in range(ranks):
            own = {"RANK": str(rank), launch.LOOKS: str(folder / f"look-{rank}")}
            started.append(
                subprocess.Popen(
                    [sys.executable, HERE / "ranks.py", way],
                    env={**env, **own},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"trains\n"
        pids = {rank: (each.pid, str(folder / f"look-{rank}")) for rank, each in enumerate(started)}
        answers = []
        for _ in range(2):
            time.sleep(BETWEEN)
            answers.append(_ask(pids))
        return answers
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def _ask(pids: dict[int, tuple[int, str]]) -> dict[str, dict[str, Any]]:
    loop = Loop()
    found: list[dict[str, dict[str, Any]]] = []
    looking.look(loop, pids, lambda told: (found.append(told), loop.stop()), True, recorder.read_times)
    loop.run()
    loop.close()
    return found[0]


def main() -> None:
    import tempfile

    for way in WAYS:
        for ranks in (2, 4):
            alone = (way, ranks) == ("group", 2)  # in a group of one
            if alone or (sys.argv[1:] and f"{way}-{ranks}" not in sys.argv[1:]):
                continue
            with tempfile.TemporaryDirectory() as folder:
                text = json.dumps(record(way, ranks, Path(folder)), separators=(",", ":"), sort_keys=True)
                (HERE / f"{way}-{ranks}.json").write_text(text.replace('}}},"', '}}},\n"') + "\n")
                print(way, ranks, len(text), flush=True)


if __name__ == "__main__":
    main()
