"""What a job of Kubeflow's and its pods say, as events of a run. Pure.

A pod is seen as a worker's of echelon's own (`as_worker`), so that the same functions tell how it ended and
why it does not start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from msgspec.structs import replace as changed

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import below, conditions, moment, one_line
from echelon.engines.kubernetes.pods import Container, ContainerStatus, Pod
from echelon.engines.kubernetes.state import workers
from echelon.engines.kubernetes.suspended import is_told_to_suspend
from echelon.engines.kubernetes.watched.kinds import (
    Address,
    container_of,
    groups_of,
    index_of,
    role_of,
)
from echelon.engines.kubernetes.watched.restarts import (
    Replacements,
    count_restarts,
    has_failed,
    of_latest_attempt,
)
from echelon.model import ends
from echelon.model.event import Event, RootCause
from echelon.model.job import Job
from echelon.model.plan import Placement, Plan, Seat
from echelon.model.pods.pod import KUBEFLOW_KIND, PodOptions
from echelon.model.run import Record, RunRef
from echelon.model.world import Group, World
from echelon.values import frozen

Object = dict[str, Any]
N = TypeVar("N", Container, ContainerStatus)


@frozen
class Seen:
    """A job and its newest pods, by the number of their worker; how often pods were started again. Of these,
    `replaced` were seen to come in the place of others that are gone.
    """

    address: Address
    job: Mapping[str, Any]
    pods: Mapping[int, Pod]
    groups: tuple[tuple[str, int], ...]
    restarts: int = 0
    replaced: int = 0


def see(address: Address, job: Mapping[str, Any], pods: Sequence[Pod], *, attempts: int = 0) -> Seen:
    """Number the pods through, as the ranks of a run are; `attempts` is how often all were made anew."""
    latest = of_latest_attempt(pods, attempts)
    groups = tuple(groups_of(job, latest))
    first: dict[str, int] = {}
    total = 0
    for role, count in groups:
        first[role] = total
        total += count
    found: dict[int, list[Pod]] = {}
    for pod in sorted(latest, key=lambda each: each.metadata.creation_timestamp or ""):
        found.setdefault(first[role_of(pod)] + index_of(pod, job), []).append(pod)
    newest = {number: mine[-1] for number, mine in sorted(found.items())}
    earlier = [pod for mine in found.values() for pod in mine[:-1]]
    restarts = attempts + count_restarts(earlier, list(newest.values()))
    return Seen(address=address, job=job, pods=newest, groups=groups, restarts=restarts)


def with_replaced(seen: Seen, known: Replacements) -> Seen:
    """The same, with the pods that were replaced since the first look; where the controller leaves those that
    were, they are counted already.
    """
    if not seen.address.kind.says_restarting:
        return seen
    count = known.count(seen.pods, suspended=is_told_to_suspend(seen.job))
    return replace(seen, restarts=seen.restarts + count, replaced=count)


def as_worker(worker: int, pod: Pod) -> Pod:
    """The pod as if it were that worker of one of echelon's runs."""
    name = container_of(pod)

    def renamed(listed: Iterable[N]) -> tuple[N, ...]:
        return tuple(changed(each, name=names.CONTAINER) if each.name == name else each for each in listed)

    about, index = pod.metadata, {names.COMPLETION_INDEX: str(worker)}
    statuses = renamed(pod.status.container_statuses)
    return changed(
        pod,
        metadata=changed(about, labels=about.labels | index, annotations=about.annotations | index),
        spec=changed(pod.spec, containers=renamed(pod.spec.containers)),
        status=changed(pod.status, container_statuses=statuses),
    )


def as_jobs(seen: Seen) -> list[Object]:
    """A Job in the place of the controller's own object, for the diagnosis of its pods."""
    total = sum(count for _, count in seen.groups)
    kept = ("name", "uid", "labels", "creationTimestamp")
    about = {name: value for name, value in seen.job["metadata"].items() if name in kept}
    spec = {"completions": total, "suspend": is_told_to_suspend(seen.job)}
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}]


def record_of(ref: RunRef, seen: Seen) -> Record:
    """The job as a run that was submitted and admitted."""
    pod = next(iter(seen.pods.values()), None)
    mine = [each for each in pod.spec.containers if each.name == container_of(pod)] if pod is not None else []
    main = mine[0] if mine else Container()
    world = World(groups=tuple(Group(role=role, workers=count, procs=1) for role, count in seen.groups))
    total = sum(count for _, count in seen.groups)
    seats = tuple(Seat(worker=number, node=_node(seen.pods.get(number))) for number in range(total))
    job = Job(
        name=ref.name,
        command=(*main.command, *main.args) or (seen.address.kind.word,),
        workers=total,
        framework=seen.address.kind.framework,
        restarts=_limit(seen),
        pod=PodOptions(image=main.image or None, annotations={KUBEFLOW_KIND: seen.address.kind.kind}),
    )
    plan = Plan(
        world=world,
        launches=(),
        placement=Placement(seats=seats),
    )
    return Record(ref=ref, job=job, created=moment(_created(seen.job)) or 0.0, owner="", plan=plan)


def events_of(seen: Seen) -> list[Event]:
    """What has happened, as far as the objects tell, in order."""
    held, status = conditions(seen.job), seen.job.get("status") or {}
    created = moment(_created(seen.job)) or 0.0
    events = [Event(kind="recorded", at=created)]
    suspended = "Suspended" in held or is_told_to_suspend(seen.job)
    if suspended:
        since = _changed(held.get("Suspended")) or created
        events.append(Event(kind="queued", at=since, reason="it is suspended"))
    else:
        events.append(Event(kind="admitted", at=moment(status.get("startTime")) or created))
    end = end_of(seen)
    if "Restarting" in held:
        events.append(
            Event(
                kind="restarting",
                at=_changed(held["Restarting"]) or created,
                restart=max(1, seen.restarts),
                reason=one_line(held["Restarting"].get("message")) or None,
            )
        )
    elif seen.replaced:
        events.append(Event(kind="restarting", at=events[-1].at, restart=seen.restarts))
    elif not seen.address.kind.says_restarting and (restart := _restart_now(seen, over=end is not None)):
        events.append(Event(kind="restarting", at=events[-1].at, restart=restart))
    for number, pod in seen.pods.items():
        events += _of_pod(number, as_worker(number, pod), seen.restarts)
    return events if end is None else [*events, end]


def end_of(seen: Seen) -> Event | None:
    """How the job ended; None while it has not."""
    held, status = conditions(seen.job), seen.job.get("status") or {}
    done = held.get("Succeeded") or held.get("Complete")
    if done is not None:
        return ends.succeeded(at=moment(status.get("completionTime")) or _changed(done) or 0.0)
    failed = held.get("Failed")
    if failed is not None:
        at = moment(status.get("completionTime")) or _changed(failed) or 0.0
        return _failure(seen, one_line(failed.get("message")) or "the job failed", at)
    stopped = (seen.job["metadata"].get("annotations") or {}).get(names.STOPPED)
    if stopped is not None and ("Suspended" in held or (is_told_to_suspend(seen.job) and not seen.pods)):
        return ends.stopped("by `echelon stop`: it is suspended", at=moment(stopped) or 0.0)
    return None


def first_failure(seen: Seen) -> int | None:
    """The worker whose container failed first."""
    failed = []
    for number, pod in seen.pods.items():
        end = workers.container_end(as_worker(number, pod))
        if end is not None and end.exit_code:
            failed.append((end.at, number))
    return min(failed)[1] if failed else None


def _failure(seen: Seen, message: str, at: float) -> Event:
    number = first_failure(seen)
    if number is None:
        return ends.failed(message, at=at, kind="run-lost", exit_code=1)
    pod = seen.pods[number]
    end = workers.container_end(as_worker(number, pod))
    assert end is not None
    how = f"was ended by {end.signal}" if end.signal else f"exited with code {end.exit_code}"
    how = "ran out of memory" if end.reason == "OOMKilled" else how
    cause = RootCause(
        summary=f"rank {number} ({pod.metadata.name}) failed first: it {how}",
        kind="rank",
        worker=number,
        rank=number,
        exit_code=end.exit_code,
        signal=end.signal,
    )
    finished = ends.failed(cause.summary, at=at, kind="rank", worker=number, exit_code=end.exit_code)
    return replace(finished, cause=cause)


def _of_pod(number: int, pod: Pod, restarts: int) -> list[Event]:
    started = moment(pod.status.start_time) or 0.0
    found = []
    if workers.has_started(pod):
        found.append(Event(kind="worker-started", at=started, worker=number, node=pod.spec.node_name))
    end = workers.container_end(pod)
    if end is not None and end.exit_code:
        reason = f"exited with code {end.exit_code}"
        found.append(
            Event(
                kind="rank-ended",
                at=end.at,
                worker=number,
                rank=number,
                exit_code=end.exit_code,
                signal=end.signal,
                reason=reason,
            )
        )
    elif end is not None:
        found.append(Event(kind="worker-ended", at=end.at, worker=number, exit_code=0))
    elif workers.is_running(pod):
        found.append(Event(kind="worker-running", at=started, worker=number, restart=restarts))
    return found


def _restart_now(seen: Seen, *, over: bool) -> int:
    """The number of the last restart; one that is yet to come, after a failure, counts."""
    return seen.restarts + (not over and any(map(has_failed, seen.pods.values())))


def _limit(seen: Seen) -> int:
    limit = below(seen.job, "spec", "runPolicy").get("backoffLimit")
    used = _restart_now(seen, over=end_of(seen) is not None)
    return max(limit if isinstance(limit, int) else 0, used)


def _created(job: Mapping[str, Any]) -> object:
    return job["metadata"].get("creationTimestamp")


def _changed(condition: Mapping[str, Any] | None) -> float | None:
    return moment(condition.get("lastTransitionTime")) if condition is not None else None


def _node(pod: Pod | None) -> str:
    return pod.spec.node_name if pod is not None else ""
