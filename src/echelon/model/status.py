"""How a run stands: a pure fold over its events, the same for every engine, the table, the wait and the
dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from echelon.agent.gang.verdict import LOST_EXIT_CODE
from echelon.model.display import Rows, as_html, as_text, duration
from echelon.model.event import Event, Outcome, RootCause
from echelon.model.output.progress import Progress, at_end, words
from echelon.model.program import OVER, Objective, Step
from echelon.model.state import State, StepState
from echelon.values import frozen

WorkerState = Literal["waiting", "starting", "running", "done", "failed", "stopped", "lost"]
_BESIDE = (
    "note",
    "holding",
    "worker-kept",
    "unkept",
    "keeping",
    "worker-started",
    "worker-ended",
    "rank-ended",
    "steps",
    "checkpoint",
    "restored",
)  # these leave a trouble as it is
WITHOUT_INITIALIZERS = "without its initializers"  # how a TrainJob succeeds here that has some
FINAL: frozenset[str] = frozenset({"succeeded", "failed", "stopped", "timed-out", "lost"})


@frozen
class WorkerStatus:
    """How one worker stands."""

    worker: int
    role: str = "worker"
    ranks: tuple[int, ...] = ()
    state: WorkerState = "waiting"
    node: str | None = None
    gpus: tuple[str, ...] = ()
    pid: int | None = None  # of its agent
    rank_pids: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None


@frozen
class KeptCheckpoint:
    """The newest checkpoint that the run's keeper has whole: its path below the results, and its bytes."""

    path: str
    size: int
    kept_at: float


@frozen
class Status:
    """How a run stands. `exit_code` is what `run` and `wait` exit with; None while the run goes on.

    At a prompt and in a notebook it is a short table."""

    name: str
    uri: str
    state: State = "recorded"
    reason: str | None = None
    # The kind of what keeps it from running, where `reason` is that; of one that runs, "stuck" or "quiet".
    trouble: str | None = None
    places: tuple[str, ...] = ()  # where its ranks are, if it stands still
    command: str = ""
    framework: str | None = None
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    restarts: int = 0
    restarts_allowed: int = 0
    restarts_spared: int = 0  # of the restarts, those that do not count: a worker was told to leave
    workers: tuple[WorkerStatus, ...] = ()
    sizes: tuple[int, int] | None = None  # the fewest and the most workers, where their number changes
    members: tuple[int, ...] | None = None  # and the workers that take part since the last start
    root_cause: RootCause | None = None
    exit_code: int | None = None
    results: str | None = None
    missing: tuple[str, ...] = ()  # what of the results was lost before they could be fetched
    fetched_to: str | None = None  # HOST:FOLDER that has them, where they were fetched
    released: float | None = None  # when its last worker had left, and its GPUs were free
    held_until: float | None = None  # its workers keep their place for so long, until results are fetched
    held_why: str | None = None  # why the run's keeper does not have them
    kept: tuple[int, ...] = ()  # workers whose results are with the run's keeper
    kept_until: float | None = None  # for so long, if they are not fetched before
    checkpoint: KeptCheckpoint | None = None  # the newest that pods which replace others get back
    namespace: str | None = None
    image: str | None = None  # where one was named
    kind: str | None = None  # of Kubeflow's jobs, where it was submitted as one: PyTorchJob, ...
    not_downloaded: tuple[str, ...] = ()  # what a TrainJob's initializers would have fetched before
    owner: str = ""
    agents_since: float | None = None  # when the last of its agents began to run
    trained_first: float | None = None  # when all of its ranks ran for the first time
    training_since: float | None = None  # the same after the last restart
    progress: Progress | None = None  # how far the lowest rank has come whose output tells it
    steps: tuple[Step, ...] = ()  # of a run that is made of runs, in an order in which they can run
    step_word: str = "step"  # what one of them is called: "trial" of a sweep
    objective: Objective | None = None  # of a sweep: what its trials are compared by

    def __repr__(self) -> str:
        return as_text(_rows(self))

    def _repr_html_(self) -> str:
        return as_html(_rows(self))

    def __bool__(self) -> bool:
        raise TypeError(
            "a Status is neither true nor false; ask status.state == 'succeeded', or use run.wait(check=True)"
        )


@frozen
class RunSummary:
    """One row of `ps`: what is known without reading a log."""

    name: str
    uri: str
    state: State
    created: float
    ended: float | None = None
    workers: int = 1
    sizes: tuple[int, int] | None = None  # the fewest and the most workers, where their number changes
    gpus: int = 0
    command: str = ""
    reason: str | None = None
    trouble: str | None = None  # the kind of what keeps it from running; "untended": no process admits it
    owner: str = ""
    user: str = ""  # the local user, where `owner` is the name in a cluster
    own: bool = True  # whether it is the asking user's
    parent: str | None = None  # the run that it is a step of
    steps: int | None = None  # of a run that is made of runs: how many they are
    steps_done: int = 0
    steps_place: str | None = None  # where they run; "" is this machine
    step_word: str = "step"  # what one of them is called: "trial" of a sweep
    best: str = ""  # of a sweep: what its best trial has reached, and with which values


def with_progress(status: Status, progress: Progress | None) -> Status:
    """The status with how far the training has come."""
    if progress is not None and status.state in FINAL:
        progress = at_end(progress)
    return replace(status, progress=progress)


def _rows(status: Status) -> Rows:
    """What there is to say of a run in a few rows."""
    ranks = sum(len(worker.ranks) for worker in status.workers)
    cause = status.root_cause
    return [
        ("run", status.name),
        ("state", f"{status.state}: {status.reason}" if status.reason else status.state),
        ("first to fail", f"rank {cause.rank}" if cause is not None and cause.rank is not None else ""),
        ("command", status.command),
        ("progress", ", ".join(words(status.progress)) if status.progress is not None else ""),
        (
            "workers",
            f"{len(status.workers)}, with {ranks} rank{'s' * (ranks != 1)}" if status.workers else "",
        ),
        ("checkpoint", status.checkpoint.path if status.checkpoint is not None else ""),
        ("restarts", f"{status.restarts} of {status.restarts_allowed}" if status.restarts else ""),
        ("took", duration(status.ended - status.created) if status.ended is not None else ""),
        ("exit code", str(status.exit_code) if status.exit_code else ""),
        ("results", status.results or ""),
    ]


def fold(status: Status, events: Iterable[Event]) -> Status:
    """The status after events, in order. What comes after the end changes nothing.

    A run of a week has hundreds of thousands of events, and making a frozen value for each would take most of
    the time: they change a draft, of which the result is made.
    """
    draft = _Draft(status)
    for event in events:
        if draft.state in FINAL:
            break
        _apply(draft, of_the_whole(event, draft.steps.values()) if draft.steps else event)
    return replace(status, **draft.changed())


def apply(status: Status, event: Event) -> Status:
    """The status after one more event."""
    return fold(status, (event,))


class _Draft:
    """The fields of a status that events change, while they are applied."""

    def __init__(self, status: Status) -> None:
        self.state: State = status.state
        self.reason = status.reason
        self.started = status.started
        self.ended = status.ended
        self.released = status.released
        self.restarts = status.restarts
        self.root_cause = status.root_cause
        self.exit_code = status.exit_code
        self.held_until = status.held_until
        self.missing = status.missing
        self.fetched_to = status.fetched_to
        self.held_why = status.held_why
        self.kept = status.kept
        self.kept_until = status.kept_until
        self.checkpoint = status.checkpoint
        self.restarts_spared = status.restarts_spared
        self.trouble = status.trouble
        self.places = status.places
        self.agents_since = status.agents_since
        self.trained_first = status.trained_first
        self.training_since = status.training_since
        self.members = status.members
        self.steps = {step.name: step for step in status.steps}
        self.waiting = {step.name for step in status.steps if _waits(step)}
        self.step_word = status.step_word
        self.workers = {worker.worker: _WorkerDraft(worker) for worker in status.workers}

    def taking_part(self) -> Iterable[_WorkerDraft]:
        """Those workers that take part."""
        if self.members is None:
            return self.workers.values()
        return [self.workers[each] for each in self.members if each in self.workers]

    def changed(self) -> dict[str, Any]:
        """What the status has become."""
        workers = tuple(worker.result() for worker in self.workers.values())
        found = {**vars(self), "workers": workers, "steps": tuple(self.steps.values())}
        del found["waiting"]
        return found


class _WorkerDraft:
    """The same of a worker."""

    __slots__ = ("before", "node", "pid", "rank_pids", "ranks", "reason", "state")

    def __init__(self, before: WorkerStatus) -> None:
        self.before = before
        self.state: WorkerState = before.state
        self.ranks = before.ranks
        self.node, self.pid, self.rank_pids, self.reason = (
            before.node,
            before.pid,
            before.rank_pids,
            before.reason,
        )

    def result(self) -> WorkerStatus:
        return replace(
            self.before,
            state=self.state,
            ranks=self.ranks,
            node=self.node,
            pid=self.pid,
            rank_pids=self.rank_pids,
            reason=self.reason,
        )


def of_the_whole(event: Event, steps: Iterable[Step]) -> Event:
    """What its executor's failure means for a run that is made of runs: one of these has failed, or nobody
    looks after them any more. Other events stay as they are. Pure.
    """
    if not (event.kind == "failed" or (event.kind in ("verdict", "finished") and event.outcome == "failed")):
        return event
    cause = event.cause
    if cause is not None and (cause.signal is not None or cause.kind == "worker-lost"):
        how = f"was killed by {cause.signal}" if cause.signal is not None else f"is lost: {cause.summary}"
        reason = f"its executor {how}; `echelon resume` takes it up"
        if event.outcome is None:
            return replace(event, cause=None, reason=reason)
        return replace(event, cause=None, reason=reason, outcome="lost", exit_code=LOST_EXIT_CODE)
    failed = [step for step in steps if step.state in ("failed", "timed-out")]
    if not failed:
        return event
    worst, others = failed[0], f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    which = f"{'trial' if worst.params else 'step'} {worst.name}{others}"
    return replace(event, cause=None, reason=f"{which}: {worst.reason}" if worst.reason else which)


def _apply(status: _Draft, event: Event) -> None:
    if event.kind not in _BESIDE:
        status.trouble, status.places = event.trouble, event.places or ()
    if event.worker is not None and event.worker in status.workers:
        _apply_to_worker(status.workers[event.worker], event)
    if event.kind in ("unkept", "keeping", "checkpoint"):
        _apply_to_results(status, event)
    match event.kind:
        case "queued":
            status.state, status.reason, status.started = "queued", event.reason, None
        case "admitted":
            status.state, status.reason, status.started = "starting", None, event.at
        case "waiting" | "holding":
            status.reason = event.reason or status.reason
            status.held_until = event.until or status.held_until
        case "worker-running" if status.state != "stopping":
            if all(worker.state in ("running", "done") for worker in status.taking_part()):
                status.state = "running"
            status.reason = None
            status.restarts = max(status.restarts, event.restart or 0)
        case "notice" | "resizing" | "still" | "moving" if status.state == "running":
            told = event.kind in ("notice", "resizing")
            status.reason = describe_notice(event) if told else event.reason
        case "failed":
            status.root_cause = event.cause
            status.reason = event.cause.summary if event.cause else event.reason
        case "restarting" | "gave-way" | "resized":
            _set_back(status, event)
        case "stopping":
            status.state, status.reason = "stopping", event.reason
        case "steps":
            _apply_to_steps(status, event)
        case "finished":
            _finish(status, event)
    _note_moment(status, event)


def describe_notice(event: Event) -> str:
    """What a notice says: who leaves, or has joined, and how long all ranks have."""
    time = f"; all ranks have {event.grace:g} s to end" if event.grace is not None else ""
    who = "" if event.worker is None else f"worker {event.worker} must leave: "
    return f"{who}{event.reason}{time}"


def _resize(status: _Draft, members: tuple[int, ...]) -> None:
    """These workers take part, and count their ranks in the order of their numbers."""
    procs = max((len(worker.ranks) for worker in status.workers.values()), default=0)
    status.members = members
    for worker in status.workers.values():
        at = members.index(worker.before.worker) if worker.before.worker in members else None
        worker.ranks = () if at is None else tuple(range(at * procs, (at + 1) * procs))
        if at is None:
            worker.rank_pids = {}
            worker.state = worker.state if worker.state == "lost" else "waiting"


def _set_back(status: _Draft, event: Event) -> None:
    """All workers start again, or, if the gang gave way before it was whole, wait to be started; or others
    than before take part.
    """
    if event.kind == "resized":
        if event.workers:
            _resize(status, event.workers)
        return
    gave_way = event.kind == "gave-way"
    for worker in status.workers.values():
        if worker.state != "lost" or gave_way:
            worker.state = "waiting" if gave_way else "starting"
    status.reason = event.cause.summary if event.cause else event.reason
    if gave_way:
        status.state = "starting"
    else:
        status.state, status.restarts = "restarting", event.restart or 0
        status.restarts_spared = event.spared or 0


def _note_moment(status: _Draft, event: Event) -> None:
    if event.kind == "worker-started":
        if all(worker.state != "waiting" for worker in status.taking_part()):
            status.agents_since = event.at
    elif event.kind == "restarting":
        status.training_since = None
    elif status.state == "running" and status.training_since is None:
        status.training_since = event.at
        status.trained_first = status.trained_first or event.at


def _apply_to_results(status: _Draft, event: Event) -> None:
    if event.kind == "keeping":
        status.kept, status.kept_until = event.workers or (), event.until
    elif event.kind == "checkpoint":
        if event.path is not None:
            status.checkpoint = KeptCheckpoint(path=event.path, size=event.size or 0, kept_at=event.at)
    else:
        status.held_why = event.reason


def _finish(status: _Draft, event: Event) -> None:
    outcome: Outcome = event.outcome or "lost"
    status.state = outcome
    status.reason = event.cause.summary if event.cause else event.reason
    status.ended, status.exit_code, status.released = event.at, event.exit_code, event.released
    status.missing, status.fetched_to = event.missing or (), event.fetched_to or status.fetched_to
    status.root_cause = event.cause if outcome in ("failed", "lost") else None
    for worker in status.workers.values():
        if worker.state not in ("done", "failed", "lost"):
            worker.state = "done" if outcome == "succeeded" else "stopped"
            worker.pid, worker.rank_pids = None, {}
    if status.steps:
        _finish_steps(status, event)


def _apply_to_steps(status: _Draft, event: Event) -> None:
    for step in event.steps or ():
        status.steps[step.name] = step
        (status.waiting.add if _waits(step) else status.waiting.discard)(step.name)
    status.fetched_to = event.fetched_to or status.fetched_to
    status.reason = _what_waits(status) if status.state == "running" else status.reason


def _waits(step: Step) -> bool:
    """Whether it is there and does not run yet."""
    return bool(step.run and step.reason and step.state not in OVER)


def _what_waits(status: _Draft) -> str | None:
    """Why the first step waits that does. There may be thousands, and this is asked with every event."""
    if not status.waiting:
        return None
    name = next(name for name in status.steps if name in status.waiting)
    return f"{status.step_word} {name}: {status.steps[name].reason}"


def _finish_steps(status: _Draft, event: Event) -> None:
    """What has become of steps that no process looks after any more."""
    left: StepState = "stopped" if status.state in ("stopped", "timed-out") else "lost"
    for name, step in status.steps.items():
        if step.state not in OVER:
            begun = step.state != "waiting"
            status.steps[name] = replace(
                step, state=left if begun else "not-reached", ended=event.at if begun else None, reason=""
            )


def _apply_to_worker(worker: _WorkerDraft, event: Event) -> None:
    match event.kind:
        case "worker-started":
            worker.state, worker.pid, worker.reason = "starting", event.pid, None
            worker.node = event.node or worker.node
        case "worker-running":
            worker.state, worker.reason, worker.rank_pids = "running", None, event.pids or {}
        case "worker-ended":
            if worker.state not in ("failed", "stopped"):  # of its ranks; the agent itself leaves in order
                worker.state = "done" if event.exit_code == 0 else "stopped"
            worker.pid, worker.rank_pids = None, {}
        case "worker-lost":
            worker.state, worker.reason = "lost", event.reason
        case "rank-ended" if event.reason is not None:  # by itself, not by an order
            worker.state, worker.reason = "failed", event.reason
        case "rank-ended" if (event.exit_code != 0 or event.told) and worker.state != "failed":
            worker.state = "stopped"
