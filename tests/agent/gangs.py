"""A gang on paper: brought to where a test begins, and what it has decided since."""

from __future__ import annotations

from typing import Any

from echelon.agent.gang.decisions import Gang
from echelon.agent.ranks.report import make_end
from echelon.agent.task import Task

NOW = 100.0
UNFIT = {"summary": "worker 1: the code cannot be unpacked", "worker": 1, "exit_code": 116}


def gang(
    workers: int = 2,
    *,
    essential: set[int] | None = None,
    wiring: dict[str, str] | None = None,
    until: str = "all",
    **rules: Any,
) -> Gang:
    groups = [
        {
            "role": "worker",
            "workers": 1,
            "procs": 1,
            "essential": essential is None or worker in essential,
            "launch": {"argv": ["true"], "wiring": wiring or {}, "until": until},
        }
        for worker in range(workers)
    ]
    places = dict.fromkeys(("cwd", "output", "logs", "reports", "secret"), "/nowhere")
    leader = {"host": "nowhere", "port": 1}
    return Gang(Task({"schema": 1, "run": "r", "groups": groups, "leader": leader, **places, **rules}), NOW)


def said(gang: Gang) -> list[tuple[int | None, str]]:
    out, gang.outbox = gang.outbox, []
    return [(worker, str(message["say"])) for worker, message in out]


def events(gang: Gang) -> list[str]:
    out, gang.events = gang.events, []
    return [str(event["kind"]) for event in out]


def running(workers: int = 2, **rules: Any) -> Gang:
    made = gang(workers, **rules)
    for worker in range(workers):
        made.joined(worker, f"10.0.0.{worker}", -1, NOW)
    for worker in range(workers):
        made.ready(worker, 0, [20000 + worker], NOW)
    assert made.phase == "running"
    assert said(made) == [(None, "prepare"), (None, "start")]
    return made


def end(rank: int, code: int = 1, error: str | None = "ValueError: boom") -> dict[str, Any]:
    return make_end(rank, rank, code, error, ["last words"], NOW)


def stop_all(made: Gang, *workers: int) -> None:
    for worker in workers:
        made.stopped(worker, made.generation, NOW)
