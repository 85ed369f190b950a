"""What echelon itself holds while ranks do nothing: an agent, the supervisor, and their peers."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure.figures import Figure, Line, Target, show
from measure.processes import Memory, memory_of, processor_time_of
from measure.rounds import PATIENCE, Workspace, program, run, workspace

ROUNDS = 3
SETTLE = 1.0
WATCHED = 3.0  # seconds over which an idle process's share of a processor is taken
RANK = ["sleep", "60"]  # bounded: it ends by itself should we not


@dataclass(frozen=True, kw_only=True, slots=True)
class Idle:
    """A process that has nothing to do: what it holds, and its share of one processor in per cent."""

    memory: Memory
    share: float


def main() -> None:
    samples: dict[str, list[Idle]] = {}
    with workspace() as place:
        for number in range(ROUNDS):
            with (
                _detached_run(place, f"idle-{number}") as pids,
                _running(place, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]) as python,
                _running(
                    place, [program("torchrun"), "--standalone", "--nproc-per-node=2", "--no-python", *RANK]
                ) as torchrun,
            ):
                _wait_for_children(torchrun, 2)
                for name, idle in _look(
                    {**pids, "python that sleeps": python, "torchrun's agent": torchrun}
                ).items():
                    samples.setdefault(name, []).append(idle)

    def resident(name: str) -> Figure:
        return Figure(
            name=f"{name}, RSS", samples=[idle.memory.resident for idle in samples[name]], unit="MB"
        )

    def shared_out(name: str) -> Figure:
        return Figure(
            name=f"{name}, PSS", samples=[idle.memory.shared_out for idle in samples[name]], unit="MB"
        )

    def share(name: str) -> Figure:
        return Figure(name=f"{name}, CPU", samples=[idle.share for idle in samples[name]], unit="%")

    small = Target(limit=25, sense="at most", of="figure")
    lines = [
        Line(figure=resident("leading agent"), peer=resident("python that sleeps"), target=small),
        Line(figure=shared_out("leading agent"), peer=shared_out("torchrun's agent")),
        Line(figure=resident("agent"), peer=resident("torchrun's agent"), target=small),
        Line(figure=shared_out("agent"), peer=shared_out("torchrun's agent")),
        Line(figure=resident("supervisor"), peer=resident("torchrun's agent")),
        Line(figure=shared_out("supervisor"), peer=shared_out("torchrun's agent")),
        *(
            Line(figure=share(name), peer=share("torchrun's agent"))
            for name in ("leading agent", "agent", "supervisor")
        ),
    ]
    show(f"Idle beside two ranks that sleep ({ROUNDS} rounds)", lines)


@contextlib.contextmanager
def _detached_run(place: Workspace, name: str) -> Iterator[dict[str, int]]:
    """A run of two workers whose ranks sleep: the processes that look after it."""
    echelon = program("echelon")
    run(place, [echelon, "run", "-d", "-n", "2", "--name", name, "--", *RANK])
    try:
        folder = Path(place.environment["ECHELON_HOME"]) / "runs" / name
        agents = _wait_for_agents(folder / "events.jsonl", 2)
        supervisor = json.loads((folder / "supervisor.json").read_bytes())["pid"]
        yield {"leading agent": agents[0], "agent": agents[1], "supervisor": supervisor}
    finally:
        run(place, [echelon, "stop", name])
        subprocess.run(
            [echelon, "wait", name], env=place.environment, capture_output=True, timeout=PATIENCE, check=False
        )


@contextlib.contextmanager
def _running(place: Workspace, command: Sequence[str]) -> Iterator[int]:
    process = subprocess.Popen(
        command,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _look(pids: dict[str, int]) -> dict[str, Idle]:
    time.sleep(SETTLE)
    before = {name: processor_time_of(pid) for name, pid in pids.items()}
    time.sleep(WATCHED)
    return {
        name: Idle(memory=memory_of(pid), share=100 * (processor_time_of(pid) - before[name]) / WATCHED)
        for name, pid in pids.items()
    }


def _wait_for_agents(events: Path, count: int) -> dict[int, int]:
    """Process ids of the agents by worker, once the ranks of each run."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        told = [json.loads(line) for line in events.read_bytes().split(b"\n")[:-1]]
        if sum(event["kind"] == "worker-running" for event in told) == count:
            return {event["worker"]: event["pid"] for event in told if event["kind"] == "worker-started"}
        time.sleep(0.05)
    sys.exit("the ranks did not start")


def _wait_for_children(pid: int, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while len(children.read_text().split()) < count:
        if time.monotonic() > deadline:
            sys.exit(f"process {pid} started no {count} children")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
