"""What can be found of a run in a cluster, as objects of the shape that an API server gives, and logs of the
shape that agents write: one case for every combination of `facts.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial

import msgspec
from testbed.kubectl import Object
from tests.engines.kubernetes.situations import run_job
from tests.engines.kubernetes.state.facts import Facts, all_facts
from tests.engines.kubernetes.typed import typed

from echelon.agent.task import INTERRUPTED, LEFT_FOR_GOOD, NO_LEADER, RANK_FAILED, RUN_OVER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.follow.view import View, to_view
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored, keys, read
from echelon.engines.kubernetes.render.task import write_plan
from echelon.model.job import Job
from echelon.model.plan import Launch, Placement, Plan, Seat
from echelon.model.pods.pod import Keeper, Output, PodOptions
from echelon.model.resources import Resources
from echelon.model.run import Record, RunRef
from echelon.model.world import Group, World
from echelon.values import frozen

RUN = "demo"
REF = RunRef(engine="k8s", name=RUN, namespace="team")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
STOPPED, DECIDED, STOPPED_LATE, ENDED, DELETED, CLOSED = (BEGAN + each for each in (40, 50, 55, 60, 90, 120))
NOW = BEGAN + 600
UID = "the-record"
_STOPS: Mapping[str, Object] = {
    "stopped": {"at": STOPPED, "reason": "stopped by ann"},
    "stopped-late": {"at": STOPPED_LATE, "reason": "stopped by ann"},
    "given-up": {"at": STOPPED, "reason": "image a/b:1 does not exist", "outcome": "failed"},
    "timed-out": {"at": STOPPED, "reason": "it was queued for 1 h", "outcome": "timed-out"},
}
_ENDS: Mapping[str, Object] = {
    "succeeded": {"outcome": "succeeded", "exit_code": 0},
    "failed": {"outcome": "failed", "exit_code": 3, "cause": {"summary": "rank 1 exited with code 3"}},
    "stopped": {"outcome": "stopped", "exit_code": 143, "reason": "stopped by ann"},
}
_STARTED = ("started", "on-volume", "admitted")
_FAILURES = {"policy": "PodFailurePolicy", "indexes": "FailedIndexes", "deadline": "DeadlineExceeded"}


@frozen
class Case:
    """What can be found of a run at one moment; `now` is when.

    Lines are those of the newest pod of the leader, of the other worker, and of the keeper: None if there is
    none that could have any, or nobody can read them. `record` and `listed` are the objects as they are
    listed, of which `stored`, `jobs`, `pods` and `waiting` are made."""

    id: str
    facts: Facts
    stored: Stored
    jobs: Sequence[Object]
    pods: Sequence[Pod]
    waiting: Sequence[Object]
    leader_lines: Sequence[bytes] | None
    peer_lines: Sequence[bytes] | None
    keeper_lines: Sequence[bytes] | None
    now: float
    record: Object
    listed: Sequence[Object]
    listed_pods: Sequence[Object]

    @property
    def view(self) -> View:
        return View(stored=self.stored, jobs=self.jobs, pods=self.pods, waiting=self.waiting)


def all_cases() -> Iterator[Case]:
    """Every combination, as objects. Cases share them: none may be changed."""
    return map(case_of, all_facts())


def case_of(facts: Facts) -> Case:
    """The objects of one combination."""
    two = facts.jobs.startswith("two")
    listed, leaders, peers = _jobs(facts.jobs, facts.phase), _leaders(facts.leader), _peers(facts.peer, two)
    said = facts.phase, facts.stop, facts.end, facts.fetched, facts.keeper != "-"
    listed_pods = [*leaders, *peers]
    view = to_view(_read(*said), listed, typed(Pod, listed_pods))
    own = {pod.metadata.uid for pod in view.pods}
    return Case(
        id=str(facts),
        facts=facts,
        stored=view.stored,
        jobs=view.jobs,
        pods=view.pods,
        waiting=view.waiting,
        leader_lines=_leader_lines(facts.told) if facts.told != "-" else None,
        peer_lines=_peer_lines(facts.peers) if facts.peers != "-" else None,
        keeper_lines=_keeper_lines(facts.keeper) if facts.keeper not in ("-", "gone") else None,
        now=NOW,
        record=_record(*said),
        listed=listed,
        listed_pods=[pod for pod in listed_pods if pod["metadata"]["uid"] in own],
    )


@cache
def _read(phase: str, stop: str, end: str, fetched: str, keeper: bool) -> Stored:
    return read(_record(phase, stop, end, fetched, keeper), REF)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def plan_of(two: bool) -> Plan:
    """The plan of two workers, in one group or in two."""
    one, other = Group(workers=1, procs=1), Group(role="ps", workers=1, procs=1, essential=False)
    groups = (one, other) if two else (Group(workers=2, procs=1, resources=Resources()),)
    return Plan(
        world=World(groups=groups),
        launches=tuple(Launch(argv=("true",)) for _ in groups),
        placement=Placement(seats=tuple(Seat(worker=at, node=f"node-{at}") for at in (0, 1))),
    )


@cache
def _record(phase: str, stop: str, end: str, fetched: str, keeper: bool) -> Object:
    volume = Output(claim="work") if phase == "on-volume" else None
    options = PodOptions(output=volume, keeper=Keeper() if keeper else None)
    job = Job(name=RUN, script="train.py", workers=2, pod=options)
    run = Record(ref=REF, job=job, created=BEGAN, owner="ann", results="")
    notes: dict[str, object] = {keys.SCHEMA: "2", keys.DIALECT: "job"}
    data: dict[str, object] = {keys.RECORD: msgspec.json.encode(run).decode()}
    if stop != "-":
        notes[keys.STOP] = json.dumps(_STOPS[stop])
    if end != "-":
        data[keys.FINISHED] = json.dumps({"kind": "finished", "at": ENDED, **_ENDS[end]})
        if phase in _STARTED:  # who keeps the end keeps the plan
            data[keys.PLAN] = msgspec.json.encode(plan_of(two=False)).decode()
    if fetched != "-":
        told = {"at": CLOSED, "host": "there", "path": "/home/ann/demo", "missing": []}
        notes[keys.COLLECTED] = json.dumps(told)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": RUN,
            "namespace": "team",
            "uid": UID,
            "resourceVersion": "17",
            "creationTimestamp": _stamp(BEGAN),
            "labels": names.labels_of(RUN, "ann", names.RECORD),
            "annotations": notes,
            "ownerReferences": [_owner(RUN)] if phase in (*_STARTED, "waits") else [],
        },
        "data": data,
    }


def _owner(job: str) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"job-{job}"}


@cache
def _jobs(state: str, phase: str) -> tuple[Object, ...]:
    """The Jobs in that state."""
    if state == "none":
        return ()
    if not state.startswith("two"):
        return (_job(state, phase),)
    first, second = {
        "two-running": ("running", "running"),
        "two-first-failed": ("failed-policy", "running"),
        "two-first-complete": ("complete", "running"),
        "two-one-missing": ("running", ""),
        "two-one-suspended": ("running", "suspended"),
    }[state]
    others = (_job(second, phase, number=1, of=2),) if second else ()
    return (_job(first, phase, of=2), *others)


def _job(state: str, phase: str, *, number: int = 0, of: int = 1) -> Object:
    """One of so many Jobs."""
    name = f"{RUN}-ps" if number else RUN
    suspended = {"suspend": True} if state == "suspended" else {}
    nothing = {"completions": 0, "parallelism": 0} if state == "withdrawn" else {}
    made = run_job(RUN, "image", workers=3 - of, name=name, first=number, spec={**suspended, **nothing})
    what, _, why = state.partition("-")
    found = {
        "complete": ("SuccessCriteriaMet", "Complete"),
        "withdrawn": ("SuccessCriteriaMet", "Complete"),
        "completing": ("SuccessCriteriaMet",),
        "failed": ("FailureTarget", "Failed"),
        "failing": ("FailureTarget",),
    }.get(what, ())
    about = made["metadata"]
    about |= {"uid": f"job-{name}", "namespace": "team", "resourceVersion": "5"}
    about["annotations"] |= {names.RECORD_UID: UID}
    about["creationTimestamp"] = _stamp(BEGAN + 1)
    if state == "deleted":
        about |= {"deletionTimestamp": _stamp(DELETED), "finalizers": ["foregroundDeletion"]}
    if not number:
        about["annotations"] |= {names.PLAN: write_plan(plan_of(of == 2)), names.CREATED: str(BEGAN)}
        if phase == "waits":
            waits = [{"at": BEGAN, "reason": "waiting for 2 GPUs"}]
            about["annotations"] |= {names.WAITS: json.dumps(waits), names.TRIED: str(BEGAN + 5)}
        else:
            admitted = NOW - 1 if phase == "being-made" else BEGAN + 1
            about["annotations"] |= {names.ADMITTED: str(admitted), names.WHOLE: str(admitted)}
        if phase == "waits" and state == "withdrawn":
            about["annotations"][names.WITHDRAWN] = json.dumps(_STOPS["timed-out"])
    at, reason = _stamp(CLOSED), _FAILURES.get(why, "")
    conditions = [
        {"type": each, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at}
        for each in found
    ]
    return {**made, "status": {"startTime": _stamp(BEGAN + 1), "conditions": conditions}}


_RUNS: Object = {"running": {"startedAt": _stamp(BEGAN + 10)}}
_WAITS: Object = {"waiting": {"reason": "ContainerCreating"}}
_LEFT_CAUSE = {
    "kind": "worker-left",
    "summary": "worker 0 was lost: its agent was told to leave (SIGTERM)",
    "worker": 0,
    "exit_code": 117,
}
_RANK_CAUSE = {"kind": "rank", "summary": "rank 1 exited with code 3", "worker": 1, "rank": 1, "exit_code": 3}
_ABSENT_CAUSE = {
    "kind": "worker-absent",
    "summary": "worker 1 did not come within 60 s",
    "worker": 1,
    "exit_code": 117,
}
_VERDICTS: Mapping[str, Object] = {
    "succeeded": {"outcome": "succeeded", "exit_code": 0},
    "failed": {"outcome": "failed", "exit_code": 3, "cause": _RANK_CAUSE},
    "stopped": {"outcome": "stopped", "exit_code": 143, "reason": "stopped by ann"},
    "left": {"outcome": "failed", "exit_code": 117, "cause": _LEFT_CAUSE},
    "absent": {"outcome": "failed", "exit_code": 117, "cause": _ABSENT_CAUSE},
}


@cache
def _leaders(state: str) -> tuple[Object, ...]:
    """The pods of worker 0, the oldest first."""
    told = {word: json.dumps({**verdict, "at": DECIDED}) for word, verdict in _VERDICTS.items()}
    first, killed = _pod(0, _ended(1)), _pod(0, _ended(137, told["succeeded"]))
    found: Mapping[str, tuple[Object, ...]] = {
        "none": (),
        "pending": (_pod(0, _WAITS),),
        "running": (_pod(0, _RUNS),),
        "replaced": (first, _pod(0, _RUNS, losses=1)),
        "replacing": (first, _pod(0, _WAITS, losses=1)),
        "over-succeeded": (_pod(0, _ended(0, told["succeeded"])),),
        "over-failed": (_pod(0, _ended(RUN_OVER, told["failed"])),),
        "over-stopped": (_pod(0, _ended(RUN_OVER, told["stopped"])),),
        "over-left": (_pod(0, _ended(LEFT_FOR_GOOD, told["left"]), leaves=True),),
        "killed-after": (killed,),
        "killed-replacing": (killed, _pod(0, _WAITS, losses=1)),
        "killed-replaced": (killed, _pod(0, _RUNS, losses=1)),
        "killed-refailed": (killed, _pod(0, _ended(RUN_OVER, told["absent"]), losses=1)),
        "bare-0": (_pod(0, _ended(0)),),
        "bare-over": (_pod(0, _ended(RUN_OVER)),),
        "bare-left": (_pod(0, _ended(LEFT_FOR_GOOD), leaves=True),),
        "oom": (_pod(0, _ended(137, reason="OOMKilled")),),
        "leaving": (_pod(0, _RUNS, leaves=True),),
        "left": (_pod(0, _ended(INTERRUPTED), leaves=True),),
        "cut-off": (_pod(0, _RUNS, cut_off=True),),
        "cut-off-deleted": (_pod(0, _RUNS, cut_off=True, leaves=True),),
    }
    return found[state]


@cache
def _peers(state: str, two: bool) -> tuple[Object, ...]:
    """The pods of worker 1, the oldest first."""
    made = partial(_pod, 1, two=two)
    cause = json.dumps({"cause": _RANK_CAUSE})
    why = json.dumps({"reason": "worker 0 was lost, and no restart is left"})
    found: Mapping[str, tuple[Object, ...]] = {
        "none": (),
        "pending": (made(_WAITS),),
        "running": (made(_RUNS),),
        "replaced": (made(_ended(1)), made(_RUNS, losses=1)),
        "done": (made(_ended(0)),),
        "rank-failed": (made(_ended(RANK_FAILED, cause)),),
        "no-leader": (made(_ended(NO_LEADER, why)),),
        "left-for-good": (made(_ended(LEFT_FOR_GOOD), leaves=True),),
        "oom": (made(_ended(137, reason="OOMKilled")),),
        "leaving": (made(_RUNS, leaves=True),),
        "cut-off": (made(_RUNS, cut_off=True),),
    }
    return found[state]


def _pod(
    worker: int,
    state: Object,
    *,
    losses: int = 0,
    cut_off: bool = False,
    leaves: bool = False,
    two: bool = False,
) -> Object:
    """A pod as its Job makes it."""
    alone = two and worker == 1
    job, index = (f"{RUN}-ps", 0) if alone else (RUN, worker)
    spec = run_job(RUN, "image", first=int(alone))["spec"]["template"]["spec"]
    ended = state.get("terminated")
    over = "" if ended is None else "Failed" if ended["exitCode"] else "Succeeded"
    ready = not cut_off and "running" in state
    since = _stamp(DELETED if cut_off else BEGAN + 10)
    conditions = [
        {"type": "Ready", "status": str(ready), "lastTransitionTime": since},
        {"type": "ContainersReady", "status": str("running" in state), "lastTransitionTime": since},
    ]
    name = f"{job}-{index}-{'bcdef'[losses] * 5}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"pod-{name}",
            "creationTimestamp": _stamp(BEGAN + 5 + 10 * losses),
            "labels": {**names.labels_of(RUN, "ann", names.WORKER), names.JOB_NAME: job},
            "annotations": {names.COMPLETION_INDEX: str(index), names.FAILURE_COUNT: str(losses)},
            "ownerReferences": [{**_owner(job), "controller": True}],
            **({"deletionTimestamp": _stamp(DELETED)} if leaves else {}),
        },
        "spec": {**spec, "nodeName": f"node-{worker}"},
        "status": {
            "phase": over or ("Running" if "running" in state else "Pending"),
            "startTime": _stamp(BEGAN + 5),
            "conditions": conditions,
            "containerStatuses": [{"name": names.CONTAINER, "state": state}],
        },
    }


def _ended(code: int, message: str = "", *, reason: str = "") -> Object:
    why = reason or ("Completed" if code == 0 else "Error")
    told = {"exitCode": code, "reason": why, "message": message, "finishedAt": _stamp(ENDED)}
    return {"terminated": told}


# Their logs

_RUNNING = [{"kind": "worker-running", "at": BEGAN + 12, "worker": each} for each in (0, 1)]
_LAST = {"kind": "worker-ended", "at": ENDED, "worker": 0}


@cache
def _leader_lines(told: str) -> tuple[bytes, ...]:
    if told == "empty":
        return ()
    if told == "goes-on":
        return _lines(*_RUNNING)
    outcome = "failed" if told == "decided" else told.removeprefix("told-")
    return _lines(*_RUNNING, _verdict(outcome), *(() if told == "decided" else (_LAST,)))


@cache
def _peer_lines(told: str) -> tuple[bytes, ...]:
    if told == "goes-on":
        return _lines()
    holds = {"kind": "holding", "at": ENDED, "worker": 1, "until": NOW + 100}
    return _lines({"kind": "state", "events": [_verdict(told.removeprefix("alone-")), holds]})


@cache
def _keeper_lines(told: str) -> tuple[bytes, ...]:
    if told == "silent":
        return ()
    events = [_verdict(told.removeprefix("told-")), _LAST]
    kept = {"kind": "worker-kept", "at": ENDED, "worker": 0, "manifests": []}
    return _lines({"kind": "state", "events": events}, kept)


def _verdict(outcome: str) -> Object:
    return {"kind": "verdict", "at": DECIDED, **_VERDICTS[outcome]}


def _lines(*events: Object) -> tuple[bytes, ...]:
    """The lines of a log: what a rank has written, then the events."""
    return (b"0 [0] epoch 1\n", *(b"1 [event] %s\n" % json.dumps(each).encode() for each in events))


def agents_lines(case: Case, pod: str) -> Sequence[bytes] | None:
    """What a pod's log has, by its name: of one that was replaced, what it had written by then; None if it
    cannot be read.
    """
    mine = [each for each in case.pods if each.metadata.name == pod]
    newest = [each.metadata.name for each in case.pods if _is_newest(each, case.pods)]
    if not mine:
        return case.keeper_lines
    if pod not in newest:
        told = "told-succeeded" if case.facts.leader.startswith("killed") else "goes-on"
        return _leader_lines(told) if _number(mine[0]) == 0 else _peer_lines("goes-on")
    return case.leader_lines if _number(mine[0]) == 0 else case.peer_lines


def _number(pod: Pod) -> int:
    return 1 if pod.spec.node_name == "node-1" else 0


def _is_newest(pod: Pod, pods: Sequence[Pod]) -> bool:
    mine = [each for each in pods if _number(each) == _number(pod)]
    return pod is max(mine, key=lambda each: each.metadata.creation_timestamp or "")


@cache
def keepers_objects(state: str) -> tuple[Object, ...]:
    """The keeper's Job and pod; nothing of one that is gone."""
    if state in ("-", "gone"):
        return ()
    job = run_job(RUN, "image", name=names.keeper_name(RUN))
    job["metadata"] |= {
        "uid": "job-keeper",
        "labels": names.labels_of(RUN, "ann", names.KEEPER),
        "ownerReferences": [{"kind": "ConfigMap", "name": RUN, "uid": UID}],
    }
    made = _pod(0, _RUNS)
    about = {
        **made["metadata"],
        "name": f"{names.keeper_name(RUN)}-0-abcde",
        "uid": "pod-keeper",
        "labels": names.labels_of(RUN, "ann", names.KEEPER),
        "ownerReferences": [{"kind": "Job", "name": RUN, "uid": "job-keeper", "controller": True}],
    }
    return job, {**made, "metadata": about}
