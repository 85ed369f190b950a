"""How fast one agent forwards what a rank writes, against a bare pipe, and what that costs at a usual pace.

The rank writes lines of 100 bytes in blocks of 64 KiB, so that it is not what is measured. The agent writes
each line twice: with its prefix to its own output (a file, as under the supervisor), and as it is to the
rank's log.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from measure.agents import leading_agent
from measure.figures import Figure, Line, Target, show
from measure.processes import memory_of, processor_time_of
from measure.rounds import PATIENCE, Workspace, program, run, take_turns, workspace

ROUNDS = 5
MEGABYTE = 1_000_000
FAST = 128 * MEGABYTE  # written as fast as it is taken
PACE_SECONDS = 5.0
_FLOOD = """\
import os, sys, time
block = (b"epoch 1 step 12345 loss=2.302585 accuracy=0.1000".ljust(99, b".") + b"\\n") * 655
left = int(sys.argv[1])
while left:
    left -= os.write(1, block[:left])
time.sleep(float(sys.argv[2]) if sys.argv[2:] else 0)
"""
_PACE = """\
import os, sys, time
size, seconds = int(sys.argv[1]), float(sys.argv[2])  # 1 MB/s in pieces of `size` bytes
piece = (b"x" * 99 + b"\\n") * (size // 100)
began = time.monotonic()
written = 0
while (now := time.monotonic() - began) < seconds:
    while written < now * 1_000_000:
        written += os.write(1, piece)
    time.sleep(0.0001 if size < 1000 else 0.005)
"""


def main() -> None:
    with workspace() as place:
        flood, pace = place.path / "flood.py", place.path / "pace.py"
        flood.write_text(_FLOOD)
        pace.write_text(_PACE)
        _show_throughput(place, flood)
        _show_cost(place, pace, flood)


def _show_throughput(place: Workspace, flood: Path) -> None:
    agent, followed, pipe, tee = (
        "one agent",
        "echelon run, followed",
        "rank | cat > file",
        "rank | tee file > file",
    )
    rates = take_turns(
        ROUNDS,
        {
            agent: partial(_through_agent, place, flood),
            followed: partial(_through_run, place, flood),
            pipe: partial(_through_pipe, place, flood, ["cat"]),
            tee: partial(_through_pipe, place, flood, ["tee", "copy"]),
        },
    )
    ours, shown, bare, twice = (
        Figure(name=name, samples=rates[name], unit="MB/s", more_is_better=True)
        for name in (agent, followed, pipe, tee)
    )
    show(
        f"Log lines of one rank, as fast as they are taken ({FAST // MEGABYTE} MB, {ROUNDS} rounds)",
        [
            Line(figure=ours, peer=bare, target=Target(limit=50, sense="at least", of="figure")),
            Line(figure=ours, peer=twice),
            Line(figure=shown, peer=bare, target=Target(limit=50, sense="at least", of="figure")),
        ],
    )


def _show_cost(place: Workspace, pace: Path, flood: Path) -> None:
    pieces = {"in pieces of 10 kB": 10_000, "line by line": 100}
    costs = {name: _at_pace(place, pace, size) for name, size in pieces.items()}
    lines = []
    for name, (share, memory) in costs.items():
        lines += [
            Line(figure=Figure(name=f"processor, {name}", samples=[share], unit="%")),
            Line(figure=Figure(name=f"memory, {name}", samples=[memory], unit="MB")),
        ]
    after = Figure(name="memory, idle after the flood", samples=[_after_flood(place, flood)], unit="MB")
    lines.append(Line(figure=after, target=Target(limit=25, sense="at most", of="figure")))
    show(f"The agent at 1 MB/s of log lines ({PACE_SECONDS:g} s, once)", lines)


def _through_agent(place: Workspace, flood: Path) -> float:
    """MB/s from the start of the agent to its end, both included. What is lost does not count as fast."""
    started = time.perf_counter()
    with leading_agent(place, [sys.executable, "-I", "-S", str(flood), str(FAST)]) as agent:
        code = agent.process.wait(PATIENCE)
        seconds = time.perf_counter() - started
    if code:
        sys.exit(f"the agent ended with code {code}: {agent.output.read_bytes()[-2000:]!r}")
    if agent.rank_log.stat().st_size != FAST or agent.output.stat().st_size <= FAST:
        sys.exit("the agent lost lines")
    agent.rank_log.unlink()
    agent.output.unlink()
    return FAST / MEGABYTE / seconds


def _through_run(place: Workspace, flood: Path) -> float:
    started = time.perf_counter()
    command = [program("echelon"), "run", "--python", sys.executable, str(flood), str(FAST)]
    shown = run(place, command)
    seconds = time.perf_counter() - started
    if len(shown) < FAST:
        sys.exit(f"echelon run showed {len(shown)} bytes of {FAST}")
    return FAST / MEGABYTE / seconds


def _through_pipe(place: Workspace, flood: Path, reader: list[str]) -> float:
    target = place.path / "piped"
    started = time.perf_counter()
    with target.open("wb") as file:
        rank = subprocess.Popen([sys.executable, "-I", "-S", str(flood), str(FAST)], stdout=subprocess.PIPE)
        subprocess.run(reader, cwd=place.path, stdin=rank.stdout, stdout=file, timeout=PATIENCE, check=True)
        assert rank.stdout is not None
        rank.stdout.close()
        rank.wait(PATIENCE)
    seconds = time.perf_counter() - started
    assert target.stat().st_size == FAST
    target.unlink()
    return FAST / MEGABYTE / seconds


def _after_flood(place: Workspace, flood: Path) -> float:
    """The agent's memory in MB when a rank that wrote much has fallen silent."""
    argv = [sys.executable, "-I", "-S", str(flood), str(FAST), str(PATIENCE)]
    with leading_agent(place, argv) as agent:
        deadline = time.monotonic() + PATIENCE
        while not agent.rank_log.exists() or agent.rank_log.stat().st_size < FAST:
            if time.monotonic() > deadline:
                sys.exit("the flood did not come through")
            time.sleep(0.05)
        time.sleep(1.0)
        return memory_of(agent.process.pid).resident


def _at_pace(place: Workspace, pace: Path, size: int) -> tuple[float, float]:
    """The agent's share of one processor in per cent, and its memory in MB, while a rank writes 1 MB/s."""
    argv = [sys.executable, "-I", "-S", str(pace), str(size), str(PACE_SECONDS + 2)]
    with leading_agent(place, argv) as agent:
        time.sleep(1.0)  # the start is not what is asked for
        before, began = processor_time_of(agent.process.pid), time.perf_counter()
        time.sleep(PACE_SECONDS)
        used = processor_time_of(agent.process.pid) - before
        share = 100 * used / (time.perf_counter() - began)
        memory = memory_of(agent.process.pid).resident
        agent.process.wait(PATIENCE)
    written = agent.rank_log.stat().st_size / MEGABYTE
    if written < 0.9 * PACE_SECONDS:
        sys.exit(f"only {written:.1f} MB came through in {PACE_SECONDS:g} s")
    return share, memory


if __name__ == "__main__":
    main()
