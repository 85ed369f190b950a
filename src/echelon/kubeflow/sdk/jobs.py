"""Jobs as Kubeflow's clients show them, read from runs: kind, pods, what these wrote, and how jobs ended; and
what a caller of `update_job` wants changed.

A run continues as it was submitted, so that of a job's fields only `runPolicy.suspend` can be changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from echelon.engines.base import Engine
from echelon.errors import (
    EchelonError,
    InvalidJob,
    ResultsIncomplete,
    RunTimedOut,
    StateTrouble,
    UnknownRun,
)
from echelon.handle import Run
from echelon.kubeflow.labels import LEADING, Replica, labels_of
from echelon.kubeflow.sdk.describe import describe_job, describe_worker, kind_of, pod_name, replicas_of
from echelon.kubeflow.sdk.shape import Shape
from echelon.model.job import Job as RunJob
from echelon.model.run import RunRef
from echelon.model.status import FINAL, Status
from echelon.values import frozen

Change = Literal["suspend", "resume"]
SUSPEND = "spec.runPolicy.suspend"
_TEMPLATE = "template"  # of its fields, a job that is shown has only some
Job = TypeVar("Job")
_LOOKS = 0.5  # seconds between two looks at a job that is waited for


def find_change(current: Mapping[str, Any], given: Any) -> Change | None:
    """What is to be done, None if nothing is. Fields that `given` leaves out stay as they are, and those that
    only the API server sets are ignored.
    """
    if not isinstance(given, Mapping):
        raise InvalidJob("job", given, "is not a job", hint="give what get_job returns, with its changes")
    found = dict(_differences(_settable(current), _settable(given), ""))
    suspend = found.pop(SUSPEND, None)
    for path, value in found.items():
        hint = "only runPolicy.suspend can be changed; else delete_job, then create_job"
        raise InvalidJob(path, value, "cannot be changed in a job that exists", hint=hint)
    if suspend is None:
        return None
    if not isinstance(suspend, bool):
        raise InvalidJob(SUSPEND, suspend, "is neither true nor false")
    return "suspend" if suspend else "resume"


def _settable(document: Mapping[str, Any]) -> dict[str, Any]:
    about = document.get("metadata") or {}
    return {
        "kind": document.get("kind"),
        "metadata": {name: about.get(name) for name in ("name", "labels", "annotations")},
        "spec": document.get("spec") or {},
    }


def _differences(before: Any, after: Any, path: str, *, partly: bool = False) -> Iterator[tuple[str, Any]]:
    """The paths at which `after` differs; with `partly`, fields that `before` lacks do not count."""
    if isinstance(after, Mapping) and isinstance(before, Mapping):
        for key, value in after.items():
            if value is None or (partly and key not in before):
                continue
            inner = f"{path}.{key}" if path else key
            yield from _differences(before.get(key), value, inner, partly=partly or key == _TEMPLATE)
    elif isinstance(after, list) and isinstance(before, list) and len(after) == len(before):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{path}[{number}]", partly=partly)
    elif before != after and not (before is None and after in ({}, [])):
        yield path, after


@frozen
class Selection:
    """Which of a job's replicas: all, unless one of these narrows it down."""

    is_master: bool = False
    type: str | None = None
    index: int | None = None


def describe(engine: Engine, ref: RunRef) -> Shape:
    """A run as a job of its kind."""
    status = Run(ref, engine).status(progress=False)
    return Shape(describe_job(engine.read(ref), status, namespace=status.namespace or "default"))


def list_all(names: Iterable[str], look: Callable[[str], Job]) -> list[Job]:
    """The jobs of these names. One whose record is damaged, or of a newer version, is left out with a note,
    and one that was removed meanwhile without.
    """
    found = []
    for name in names:
        try:
            found.append(look(name))
        except UnknownRun:
            continue
        except StateTrouble as error:
            print(f"note: job {name} is not listed: {error}", file=sys.stderr)
    return found


def await_pods(engine: Engine, ref: RunRef, chosen: Selection, patience: float) -> list[Shape]:
    """The pods of a job; of one that has just been created, once they are there, within `patience`."""
    deadline = time.monotonic() + patience
    while True:
        found = [pod for _, pod in find_pods(engine, ref, chosen)]
        status = Run(ref, engine).status(progress=False)
        wanted = _chosen_of(kind_of(engine.read(ref).job), ref, status, chosen)
        if len(found) >= len(wanted) or status.state != "starting" or time.monotonic() >= deadline:
            return found
        time.sleep(_LOOKS)


def find_pods(engine: Engine, ref: RunRef, chosen: Selection) -> list[tuple[Replica, Shape]]:
    """The pods of a job; where its workers are not pods, what stands for them."""
    status = Run(ref, engine).status(progress=False)
    kind = kind_of(engine.read(ref).job)
    where = status.namespace or "default"
    real = engine.manifests.pods(ref) if engine.manifests is not None else None
    found = []
    for replica, labels in _chosen_of(kind, ref, status, chosen):
        if real is None:
            worker = status.workers[replica.worker]
            name = pod_name(ref.name, replica)
            found.append((replica, Shape(describe_worker(kind, name, where, labels, worker))))
        elif replica.worker in real:
            found.append((replica, Shape(_labelled(real[replica.worker], labels))))
    return found


def _labelled(pod: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """A pod with all of Kubeflow's labels, for programs that read them: those of one Job cannot differ."""
    about = pod.get("metadata") or {}
    return {**pod, "metadata": {**about, "labels": {**labels, **(about.get("labels") or {})}}}


def _chosen_of(
    kind: str, ref: RunRef, status: Status, chosen: Selection
) -> list[tuple[Replica, dict[str, str]]]:
    """The replicas that are asked for, with their labels."""
    every = replicas_of(kind, [each.role for each in status.workers])
    led = any(each.type in LEADING for each in every)
    labelled = [(each, labels_of(kind, ref.name, each, led=led)) for each in every]
    return [(each, labels) for each, labels in labelled if _is_chosen(each, chosen, labels)]


def _is_chosen(replica: Replica, chosen: Selection, labels: Mapping[str, str]) -> bool:
    return (
        (not chosen.is_master or "training.kubeflow.org/job-role" in labels)
        and (chosen.type is None or replica.type.lower() == chosen.type.lower())
        and (chosen.index is None or replica.index == int(chosen.index))
    )


def read_logs(engine: Engine, ref: RunRef, chosen: Selection, *, follow: bool) -> dict[str, str]:
    """What pods wrote, by their names; with `follow` it is printed as it comes, until the end."""
    run = Run(ref, engine)
    kind = kind_of(engine.read(ref).job)
    wanted = {each.worker: each for each, _ in _chosen_of(kind, ref, run.status(progress=False), chosen)}
    pods: dict[int, str] = {}
    found: dict[int, list[str]] = {}

    def look() -> None:  # a job that has just been created has no pods yet, and one that ended none any more
        pods.update({each.worker: str(pod.metadata.name) for each, pod in find_pods(engine, ref, chosen)})

    look()
    for line in run.logs(follow=follow):
        if line.worker not in wanted or line.rank is None:
            continue
        if line.worker not in pods:
            look()
            pods.setdefault(line.worker, pod_name(ref.name, wanted[line.worker]))
        found.setdefault(line.worker, []).append(line.text)
        if follow:
            print(f"[Pod {pods[line.worker]}]: {line.text}")
    return {pod: "".join(f"{line}\n" for line in found.get(worker, ())) for worker, pod in pods.items()}


def read_events(engine: Engine, ref: RunRef) -> dict[str, list[str]]:
    """What happened to a job, with the times."""
    told = [
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(event.at))} {event.kind}"
        + (f": {event.reason}" if event.reason else "")
        for event in engine.events(ref)
    ]
    return {f"{kind_of(engine.read(ref).job)} {ref.name}": told}


def wait(
    run: Run,
    look: Callable[[], Job],
    holding: Callable[[Job], Mapping[str, str]],
    expected: Collection[str],
    *,
    kind: Callable[[Job], str],
    patience: float,
    interval: float,
    callbacks: Sequence[Callable[[Job], object]],
) -> Job:
    """Wait until one of the conditions holds; `holding` has those of a job, with what is said of each.
    `callbacks` get the job at every change, and after `interval` seconds without one.
    """
    deadline = time.monotonic() + patience
    while True:
        job = look()
        for callback in callbacks:
            callback(job)
        holds = holding(job)
        if holds.keys() & set(expected):
            return job
        if "Failed" in holds:
            raise EchelonError(holds["Failed"], hint=f"`echelon logs {run.name}` shows its output")
        left = deadline - time.monotonic()
        if left <= 0:
            wanted = ", ".join(sorted(expected))
            raise RunTimedOut(f"{kind(job)} {run.name} is not {wanted} after {patience:g} s")
        _await_change(run, min(left, interval))


def _await_change(run: Run, patience: float) -> None:
    """Wait until the run has another state, at most so long."""
    last = run.status(progress=False).state
    deadline = time.monotonic() + patience
    while (left := deadline - time.monotonic()) > 0 and run.status(progress=False).state == last:
        time.sleep(min(_LOOKS, left))


def carry_out(change: Change | None, run: Run, job: RunJob) -> None:
    """Stop a run of this job, or start one again that was stopped. What is so already stays. One that could
    not be resumed is not stopped.
    """
    state = run.status(progress=False).state
    if change == "suspend" and state not in FINAL:
        if not run.resumable(job):
            hint = 'output = "pvc:CLAIM" in [tool.echelon] keeps them there; delete_job ends the run'
            why = "ends the run for good: its results are on no volume"
            raise InvalidJob(SUSPEND, True, why, hint=hint)
        run.stop()
    elif change == "resume" and state == "stopped":
        run.resume()


def delete(run: Run) -> None:
    """Stop a run, bring what its workers still keep to where its results belong, and forget it."""
    if run.status(progress=False).state not in FINAL:
        run.stop()
    with suppress(ResultsIncomplete):  # what is lost for good keeps no job from being deleted
        run.collect()
    run.remove()
