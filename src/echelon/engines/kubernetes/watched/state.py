"""What a job of Kubeflow's and its pods say, as events of a run. Pure.

A pod is seen as a worker's of echelon's own (`as_worker`), so that the same functions tell how it ended and
why it does not start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import below, conditions, moment, one_line
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


@frozen
class Seen:
    """A job and its newest pods, by the number of their worker; how often pods were started again. Of these,
    `replaced` were seen to come in the place of others that are gone.
    """

    address: Address
    job: Mapping[str, Any]
    pods: Mapping[int, Object]
    groups: tuple[tuple[str, int], ...]
    restarts: int = 0
    replaced: int = 0


def see(address: Address, job: Mapping[str, Any], pods: Sequence[Object], *, attempts: int = 0) -> Seen:
    """Number the pods through, as the ranks of a run are; `attempts` is how often all were made anew."""
    latest = of_latest_attempt(pods, attempts)
    groups = tuple(groups_of(job, latest))
    first: dict[str, int] = {}
    total = 0
    for role, count in groups:
        first[role] = total
        total += count
    found: dict[int, list[Object]] = {}
    for pod in sorted(latest, key=lambda each: str(each["metadata"].get("creationTimestamp"))):
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


def as_worker(worker: int, pod: Mapping[str, Any]) -> Object:
    """The pod as if it were that worker of one of echelon's runs."""
    name = container_of(pod)

    def renamed(each: Mapping[str, Any]) -> Object:
        return {**each, "name": names.CONTAINER} if each.get("name") == name else dict(each)

    about, spec, status = pod["metadata"], dict(pod.get("spec") or {}), dict(pod.get("status") or {})
    spec["containers"] = [renamed(each) for each in spec.get("containers") or ()]
    if "containerStatuses" in status:
        status["containerStatuses"] = [renamed(each) for each in status["containerStatuses"]]
    marks = {
        "labels": {**(about.get("labels") or {}), names.COMPLETION_INDEX: str(worker)},
        "annotations": {**(about.get("annotations") or {}), names.COMPLETION_INDEX: str(worker)},
    }
    return {**pod, "metadata": {**about, **marks}, "spec": spec, "status": status}


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
    containers = (pod.get("spec") or {}).get("containers") or [] if pod is not None else []
    main: Object = next((each for each in containers if each["name"] == container_of(pod or {})), {})
    words = (*(main.get("command") or ()), *(main.get("args") or ()))
    world = World(groups=tuple(Group(role=role, workers=count, procs=1) for role, count in seen.groups))
    total = sum(count for _, count in seen.groups)
    seats = tuple(Seat(worker=number, node=_node(seen.pods.get(number))) for number in range(total))
    job = Job(
        name=ref.name,
        command=tuple(map(str, words)) or (seen.address.kind.word,),
        workers=total,
        framework=seen.address.kind.framework,
        restarts=_limit(seen),
        pod=PodOptions(image=main.get("image"), annotations={KUBEFLOW_KIND: seen.address.kind.kind}),
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
        summary=f"rank {number} ({pod['metadata']['name']}) failed first: it {how}",
        kind="rank",
        worker=number,
        rank=number,
        exit_code=end.exit_code,
        signal=end.signal,
    )
    finished = ends.failed(cause.summary, at=at, kind="rank", worker=number, exit_code=end.exit_code)
    return replace(finished, cause=cause)


def _of_pod(number: int, pod: Mapping[str, Any], restarts: int) -> list[Event]:
    started = moment((pod.get("status") or {}).get("startTime")) or 0.0
    found = []
    if workers.has_started(dict(pod)):
        found.append(Event(kind="worker-started", at=started, worker=number, node=_node(pod)))
    end = workers.container_end(dict(pod))
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
    elif workers.is_running(dict(pod)):
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


def _node(pod: Mapping[str, Any] | None) -> str:
    return str(((pod or {}).get("spec") or {}).get("nodeName") or "")
