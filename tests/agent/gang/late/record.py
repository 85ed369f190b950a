"""What real ranks tell of their collectives, asked twice: `python -m tests.agent.gang.late.record` writes the
JSON files beside this one again, which the test of lateness reads; with names (`asleep-4`) those alone.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.agent.gang.recording import look_of, ranks_of

from echelon.agent.loop import Loop
from echelon.agent.ranks.stuck import looking, recorder

HERE = Path(__file__).parent
WAYS = ("asleep", "even", "loads", "buckets", "group")
BETWEEN = 4.0  # seconds between the questions


def record(way: str, ranks: int, folder: Path) -> list[dict[str, dict[str, Any]]]:
    """Start ranks that train in this way, and ask them twice."""
    with ranks_of(HERE / "ranks.py", way, ranks, folder) as started:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == b"trains\n"
        pids = {rank: (each.pid, look_of(folder, rank)) for rank, each in enumerate(started)}
        answers = []
        for _ in range(2):
            time.sleep(BETWEEN)
            answers.append(_ask(pids))
        return answers


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
