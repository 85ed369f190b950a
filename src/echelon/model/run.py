"""A run's address, and what was written down of it when it was recorded."""

from __future__ import annotations

from typing import Literal

from echelon.errors import InvalidJob, StateTrouble
from echelon.model.event import cut
from echelon.model.job import Job, check_name, gpus_asked, workers_asked
from echelon.model.plan import Plan
from echelon.model.pods.pod import KUBEFLOW_KIND, NOT_DOWNLOADED
from echelon.model.program import DONE
from echelon.model.status import WITHOUT_INITIALIZERS, RunSummary, Status, WorkerStatus
from echelon.model.trials import words_of_best
from echelon.model.world import gpu_count, members, worker_count
from echelon.values import frozen

SCHEMA = 3
"""Of records. Since 2, a cluster's record has no path of results, and a start has a mark of its own; since 3,
the plan of a run in a cluster and the moment of its admission are annotations of its Jobs."""
_OLDEST_SCHEMA = 1  # that is still read


@frozen
class RunRef:
    """Where a run is and what it is called: good in any process, for as long as the run is not removed."""

    engine: str
    name: str
    namespace: str | None = None  # and context: where in which cluster, for Kubernetes
    context: str | None = None

    def __str__(self) -> str:
        from urllib.parse import quote

        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.engine}://{where}{self.name}" + (
            f"?context={quote(self.context, safe='')}" if self.context else ""
        )


StopSignal = Literal["SIGINT", "SIGTERM", "SIGKILL"]
"""What a stop begins with, the gentlest first; `echelon.agent.stopping` has their order."""


@frozen
class Record:
    """A run as it was submitted, and, once it is admitted, its plan.

    `results` is where its results belong on this machine; a cluster's record does not hold it."""

    ref: RunRef
    job: Job
    created: float
    owner: str  # in a cluster, the name by which the cluster knows the user
    user: str = ""  # the local user
    results: str = ""
    plan: Plan | None = None
    schema: int = SCHEMA


def check_schema(name: str, found: object) -> None:
    """Raise StateTrouble for a record that this version cannot read; its hint is what to do."""
    number = int(found) if isinstance(found, int) or str(found).isdecimal() else 0  # type: ignore[call-overload]
    if _OLDEST_SCHEMA <= number <= SCHEMA:
        return
    hint = (
        "upgrade this one: pip install -U echelon"
        if number > SCHEMA
        else f"`echelon rm {name}` forgets this run"
    )
    raise StateTrouble(
        f"run {name!r} was recorded by another version of echelon (schema {found}, this version reads "
        f"{_OLDEST_SCHEMA} to {SCHEMA})",
        hint=hint,
    )


def parse_uri(text: str, default_engine: str) -> RunRef:
    """Read `local://name`, `k8s://namespace/name?context=...`, `k8s://namespace/pytorchjob/name`, or a bare
    name of the default engine's.
    """
    engine, separator, rest = text.partition("://")
    if not separator:
        engine, rest = default_engine, text
    if engine not in ("local", "k8s", "memory"):
        raise InvalidJob("run", text, "names no engine", hint="for example local://NAME")
    if engine != "k8s" or not separator:
        check_name(rest)
        return RunRef(engine=engine, name=rest)
    from urllib.parse import parse_qs

    path, _, query = rest.partition("?")
    namespace, _, name = path.rpartition("/")
    context = parse_qs(query).get("context", [None])[0]
    if "/" in namespace:  # a job of another kind than echelon's own: its kind is part of its name
        namespace, _, kind = namespace.rpartition("/")
        return RunRef(engine=engine, name=f"{kind}/{name}", namespace=namespace, context=context)
    check_name(name)
    return RunRef(engine=engine, name=name, namespace=namespace or None, context=context)


def opening_status(record: Record) -> Status:
    """The status of a run before anything has happened, for events to be folded into."""
    plan, program = record.plan, record.job.program
    workers: tuple[WorkerStatus, ...] = ()
    if plan is not None:
        workers = tuple(
            WorkerStatus(
                worker=member.worker,
                role=member.role,
                ranks=tuple(range(member.first_rank, member.first_rank + member.procs)),
                node=seat.node,
                gpus=seat.gpus,
            )
            for member, seat in zip(members(plan.world), plan.placement.seats, strict=True)
        )
    return Status(
        name=record.ref.name,
        uri=str(record.ref),
        namespace=record.ref.namespace,
        image=record.job.pod.image,
        kind=record.job.pod.annotations.get(KUBEFLOW_KIND),
        not_downloaded=tuple(record.job.pod.annotations.get(NOT_DOWNLOADED, "").splitlines()),
        owner=record.owner,
        command=describe_command(record.job),
        framework=record.job.framework,
        created=record.created,
        restarts_allowed=record.job.restarts,
        workers=workers,
        sizes=_sizes(record),
        results=_whereabouts(record),
        step_word="step" if program is None else program.step_word,
        objective=None if program is None else program.objective,
    )


def _whereabouts(record: Record) -> str:
    """Where a run's results will be: on this machine, or on the user's volume that they go to."""
    output = record.job.pod.output
    if output is None or output.claim is None:
        return record.results
    return f"pvc:{output.claim}/{output.path}".rstrip("/")


def describe_command(job: Job) -> str:
    """What a job runs, as the user would type it."""
    if job.parent is not None:
        return f"step {job.parent.step} of {job.parent.run}"
    if job.program is not None:
        return " ".join(filter(None, (job.program.title, job.program.source.rpartition("/")[2])))
    if job.module is not None:
        words: tuple[str, ...] = ("-m", job.module)
    elif job.script is not None:
        # A script that was made from a function lies among the shipped code; its name is the function's.
        words = (job.script.rpartition("/")[2] if job.script.startswith("{code}") else job.script,)
    else:
        words = job.command
    return " ".join([*words, *job.args])


def _sizes(record: Record) -> tuple[int, int] | None:
    """The fewest and the most workers of a run whose number of workers changes."""
    least = record.job.least
    return None if least is None else (least, record.job.workers)


def _workers(record: Record, status: Status) -> int:
    """How many workers take part, or, before they do, how many the run asks for or has a place for."""
    if status.members is not None:
        return len(status.members)
    if record.plan is None:
        return workers_asked(record.job)
    if record.job.least is not None:
        return sum(bool(seat.node) for seat in record.plan.placement.seats)
    return worker_count(record.plan.world)


def _gpus(record: Record) -> int:
    """How many GPUs it has, or asks for."""
    if record.plan is None:
        return gpus_asked(record.job)
    if record.job.least is not None:
        return sum(len(seat.gpus) for seat in record.plan.placement.seats)
    return gpu_count(record.plan.world)


def summarise(record: Record, status: Status) -> RunSummary:
    """The row that lists a run among others."""
    job = record.job
    went_without = bool(status.not_downloaded) and status.state == "succeeded"
    return RunSummary(
        name=record.ref.name,
        uri=str(record.ref),
        state=status.state,
        created=record.created,
        ended=status.ended,
        workers=_workers(record, status),
        sizes=_sizes(record),
        gpus=_gpus(record),
        command=cut(describe_command(job)),
        reason=status.reason or (WITHOUT_INITIALIZERS if went_without else None),
        trouble=status.trouble,
        owner=record.owner,
        user=record.user,
        parent=None if job.parent is None else job.parent.run,
        steps=len(status.steps) if job.program is not None else None,
        steps_done=sum(step.state in DONE for step in status.steps),
        steps_place=None if job.program is None else job.program.place,
        step_word=status.step_word,
        best=words_of_best(status.steps, status.objective) if status.objective is not None else "",
    )
