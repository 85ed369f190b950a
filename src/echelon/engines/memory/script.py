"""What a scripted run does, told as events, lines and result files: the pure half of the memory engine.

Messages and the choice of a root cause are the agent's own, so that a played failure reads like a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import field
from typing import Any

from echelon.agent.gang import verdict
from echelon.agent.ranks import report
from echelon.agent.ranks.usage import quiet
from echelon.engines.decoding import convert
from echelon.model import ends
from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.engine.sample import RankSample, Samples, WorkerSample
from echelon.model.event import Event, RootCause
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.plan import Plan
from echelon.model.world import members
from echelon.values import frozen


@frozen
class Act:
    """What one rank does once it is started: write lines and result files, then end, or last until stopped.

    `interrupted` are the lines of one that lasts, when it gets SIGINT; `cpus` and `memory` are what it uses
    meanwhile: one that lasts and uses no CPU is stuck, where the run has a time for that.
    `error` is its last line, on stderr, and makes it fail. A negative exit code is the signal that kills it.
    """

    lines: tuple[str, ...] = ()
    error: str | None = None
    exit_code: int = 0
    lasts: bool = False
    interrupted: tuple[str, ...] = ()
    cpus: float = 0.0
    memory: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict)


Program = Act | Callable[[int, int], Act]  # the same for all ranks, or a function of the rank and the restart
Happening = Event | LogLine | Mapping[str, bytes]


def one_node(*, cpus: float = 8.0, memory: float = 32 * 2.0**30, gpus: int = 0, model: str = "") -> Cluster:
    """A cluster of a single node, all of it free."""
    devices = tuple(Gpu(id=str(number), model=model) for number in range(gpus))
    node = Node(name="memory", cpus=cpus, memory=memory, free_cpus=cpus, free_memory=memory, gpus=devices)
    return Cluster(nodes=(node,))


def perform(program: Program, job: Job, plan: Plan, now: Callable[[], float]) -> Iterator[Happening]:
    """All that happens from the start on; a run that lasts until it is stopped is not `finished` at the end.

    One generation is played after the other, until one ends well, or lasts, or there is no restart left.
    """
    for member in members(plan.world):
        yield Event(kind="worker-started", at=now(), worker=member.worker)
    for restart in range(job.restarts + 1):
        lasts, failures = yield from _perform_once(program, plan, restart, now)
        stuck = lasts and not failures and job.stall is not None and not computes(program, plan, restart)
        if failures or stuck:
            chosen = (
                verdict.choose_cause(failures) if failures else verdict.cause_of_stall(job.stall or 0, [])
            )
            cause = convert(chosen, RootCause)
            yield Event(kind="failed", at=now(), cause=cause)
            if restart < job.restarts:
                yield Event(kind="restarting", at=now(), restart=restart + 1, cause=cause)
                continue
            code = cause.exit_code
            verdict_ = Event(kind="verdict", at=now(), outcome="failed", exit_code=code, cause=cause)
            yield ends.from_verdict(verdict_, at=now())
        elif not lasts:
            yield ends.succeeded(at=now())
        elif job.timeout is not None:  # without waiting for it
            reason = f"the time limit of {job.timeout:g} s has passed"
            yield Event(kind="stopping", at=now(), reason=reason)
            yield ends.timed_out(reason, at=now())
        return


def acts_of(program: Program, plan: Plan, restart: int) -> Iterator[tuple[int, int, Act]]:
    """The worker and the rank of every act."""
    for member in members(plan.world):
        for rank in range(member.first_rank, member.first_rank + member.procs):
            yield member.worker, rank, program if isinstance(program, Act) else program(rank, restart)


def computes(program: Program, plan: Plan, restart: int) -> bool:
    """Whether a rank that lasts uses the CPU."""
    acts = acts_of(program, plan, restart)
    return quiet.computes([act.cpus for _, _, act in acts if act.lasts], [])


def sample(program: Program, plan: Plan, restart: int, now: float) -> Samples:
    """What the ranks use that last, a sample for each worker that has one."""
    found: dict[int, list[RankSample]] = {}
    for worker, rank, act in acts_of(program, plan, restart):
        if act.lasts:
            found.setdefault(worker, []).append(RankSample(rank=rank, cpus=act.cpus, memory=act.memory))
    return Samples(
        workers=tuple(
            WorkerSample(
                worker=worker,
                at=now,
                ranks=tuple(ranks),
                cpus=sum(each.cpus for each in ranks),
                memory=sum(each.memory for each in ranks),
            )
            for worker, ranks in found.items()
        )
    )


def interrupt(program: Program, plan: Plan, now: Callable[[], float]) -> Iterator[Happening]:
    """What the ranks that last do when they get SIGINT."""
    for member in members(plan.world):
        for rank in range(member.first_rank, member.first_rank + member.procs):
            act = program if isinstance(program, Act) else program(rank, 0)
            for text in act.interrupted if act.lasts else ():
                yield LogLine(text=text, at=now(), worker=member.worker, rank=rank)


def _perform_once(
    program: Program, plan: Plan, restart: int, now: Callable[[], float]
) -> Generator[Happening, None, tuple[bool, list[dict[str, Any]]]]:
    """Let every rank act. Returns whether one that matters lasts, and how those ended that failed."""
    lasts = False
    failures = []
    for member in members(plan.world):
        yield Event(kind="worker-running", at=now(), worker=member.worker, restart=restart)
    for member in members(plan.world):
        for rank in range(member.first_rank, member.first_rank + member.procs):
            act = program if isinstance(program, Act) else program(rank, restart)
            for text in act.lines:
                yield LogLine(text=text, at=now(), worker=member.worker, rank=rank)
            if act.error is not None:
                yield LogLine(text=act.error, at=now(), worker=member.worker, rank=rank, stream="stderr")
            yield act.files
            code = act.exit_code or int(act.error is not None)
            if act.lasts and not code:
                lasts = lasts or plan.world.groups[member.group].essential
                continue
            tail = [*act.lines, *([] if act.error is None else [act.error])][-report.TAIL_LINES :]
            end = report.make_end(rank, member.worker, code, act.error, tail, now())
            told = {key: end[key] for key in ("at", "worker", "rank", "exit_code", "signal")}
            yield Event(kind="rank-ended", reason=end["summary"] if code else None, **told)
            if code:
                failures.append(end)
    return lasts, failures
