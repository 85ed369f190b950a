"""What it costs to launch ranks that only print: `echelon run` against torchrun, and against a bare spawn.

Each rank prints when its script began and ended, so that the way there and the way back are seen apart.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from measure.figures import Figure, Line, Target, show
from measure.rounds import PATIENCE, Workspace, program, run, take_turns, workspace

ROUNDS = 5
_SCRIPT = (
    "import time\nbegan = time.time()\nprint(f'ran from {began:.6f} to {time.time():.6f}', flush=True)\n"
)
_STAMP = re.compile(rb"ran from (\d+\.\d+) to (\d+\.\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Seconds: of the whole command, until the last rank's script begins, and after the last one's end."""

    whole: float
    way_there: float
    way_back: float


def main() -> None:
    with workspace() as place:
        (place.path / "script.py").write_text(_SCRIPT)
        for ranks in (2, 8):
            _compare(place, ranks)


def _compare(place: Workspace, ranks: int) -> None:
    echelon, torchrun = program("echelon"), program("torchrun")
    workers, one_worker, peer, bare = (
        f"echelon run -n {ranks}",
        f"echelon run --procs {ranks}",
        "torchrun",
        "bare spawn",
    )
    commands = {
        # The same Python for all: the one on the PATH may be a slow shim that looks for another.
        workers: [echelon, "run", "-n", str(ranks), "--python", sys.executable, "script.py"],
        one_worker: [echelon, "run", "--procs", str(ranks), "--python", sys.executable, "script.py"],
        peer: [torchrun, "--standalone", "--nproc-per-node", str(ranks), "script.py"],
    }
    contenders: dict[str, Callable[[], Launch]] = {
        name: partial(_clocked, ranks, partial(run, place, words)) for name, words in commands.items()
    }
    contenders[bare] = partial(_clocked, ranks, partial(_spawn, place, ranks))
    samples = take_turns(ROUNDS, contenders)

    def figure(name: str, part: str = "whole", words: str = "") -> Figure:
        return Figure(
            name=words or name, samples=[getattr(sample, part) * 1000 for sample in samples[name]], unit="ms"
        )

    target = Target(limit=0.25 if ranks == 2 else 0.15, sense="at most", of="ratio")
    lines = []
    for ours in (workers, one_worker):
        lines += [
            Line(figure=figure(ours), peer=figure(peer), target=target),
            Line(figure=figure(ours), peer=figure(bare)),
            Line(
                figure=figure(ours, "way_there", "  until the last rank runs"), peer=figure(peer, "way_there")
            ),
            Line(
                figure=figure(ours, "way_back", "  after the last rank's end"), peer=figure(peer, "way_back")
            ),
        ]
    show(f"Launch of {ranks} ranks of a script that only prints ({ROUNDS} rounds)", lines)


def _clocked(ranks: int, launch: Callable[[], bytes]) -> Launch:
    began = time.time()  # the one clock that other processes share
    printed = launch()
    ended = time.time()
    stamps = [(float(first), float(last)) for first, last in _STAMP.findall(printed)]
    if len(stamps) != ranks:
        sys.exit(
            f"{len(stamps)} of {ranks} ranks were heard of:\n{printed.decode(errors='backslashreplace')}"
        )
    return Launch(
        whole=ended - began,
        way_there=max(first for first, _ in stamps) - began,
        way_back=ended - max(last for _, last in stamps),
    )


def _spawn(place: Workspace, ranks: int) -> bytes:
    processes = [
        subprocess.Popen(
            [sys.executable, "script.py"], cwd=place.path, env=place.environment, stdout=subprocess.PIPE
        )
        for _ in range(ranks)
    ]
    return b"".join(process.communicate(timeout=PATIENCE)[0] for process in processes)


if __name__ == "__main__":
    main()
