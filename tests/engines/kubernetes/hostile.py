"""A cluster in memory in which any field of any object may be anything: for the tests of what others write.

`Shelf` is the server, in memory, so that everything above the connection is the real thing: parsing, the
engine, the command line. `whole_cluster` are objects as they are while a run goes on; `garbled`
draws the same with one field replaced, also inside the JSON that some fields hold."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from testbed.kubectl import Object
from tests.engines.kubernetes.api_server import ApiServer, merged
from tests.engines.kubernetes.rendered import CASES, SHIPPED, planned

from echelon.engines.kubernetes import ledger, names, record
from echelon.engines.kubernetes.record import Claim, Collected, Stop
from echelon.engines.kubernetes.render.dialects import job as job_dialect
from echelon.engines.kubernetes.render.manifests import started_objects
from echelon.model import ends
from echelon.model.run import RunRef

RUN = "hello"
TITLE = "\x1b]0;mine now\x07"
_MADE = "2026-01-01T00:00:00Z"
_AT = 1767225600.0


_KUEUE = "kueue.x-k8s.io"


class Shelf(ApiServer):
    """A server whose objects may be garbled, and whose pods all have one log."""

    def __init__(self, objects: Sequence[Any], log: bytes) -> None:
        super().__init__(serves={"LocalQueue": f"localqueues.v1beta1.{_KUEUE}"})
        kinds = [each.get("kind") if isinstance(each, dict) else None for each in objects]
        self.objects = {(str(kind), str(at)): objects[at] for at, kind in enumerate(kinds)}
        self.log = log


def _about(name: str, **more: Any) -> Object:
    return {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": _MADE, **more}


def _record(name: str) -> Object:
    run, _ = planned(CASES["plain"])
    ref = RunRef(engine="k8s", name=name, namespace="team")
    obj = record.new(replace(run, ref=ref, job=replace(run.job, name=name)), SHIPPED)
    obj["metadata"] |= _about(name, resourceVersion="17")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}-job"}
    obj = merged(obj, record.tied([owner]))
    return merged(obj, record.claimed(Claim(holder="there/1/ab", until=_AT + 90)))


def _job(name: str, *, waits: bool = False) -> Object:
    """The Job of a run that has started, or of one that is queued."""
    run, plan = planned(CASES["plain"])
    ref = RunRef(engine="k8s", name=name, namespace="team")
    mine = replace(run, ref=ref, job=replace(run.job, name=name))
    (job,) = started_objects(mine, plan, SHIPPED, job_dialect, at=None if waits else _AT).jobs
    job["metadata"] |= _about(name, resourceVersion="17")
    job["metadata"]["uid"] = f"uid-{name}-job"
    job["metadata"]["annotations"][names.RECORD_UID] = f"uid-{name}"
    why = (record.Waiting(at=_AT, reason="no room"),)
    return merged(job, ledger.queued(job, why, at=_AT)) if waits else job


def whole_cluster() -> list[Object]:
    """A run that goes on, one that has ended, one that is stopped, one that is queued, and what is around."""
    job = _job(RUN)
    job["metadata"]["annotations"][names.NODES] = '["node-a"]'
    job["status"] = {
        "startTime": _MADE,
        "conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": _MADE, "reason": "x"}],
    }
    ended = merged(
        _record("ended"),
        record.finished(ends.stopped("by ann", at=_AT), Collected(at=_AT, host="here", path="/home/ann/r")),
    )
    stopping = merged(_record("stopped"), record.stopping(Stop(at=_AT, reason="by ann")))
    return [
        _record(RUN),
        ended,
        stopping,
        _record("queued"),
        job,
        _job("queued", waits=True),
        _pod(job),
        _waiting_pod(job),
        *_around(job),
    ]


def _pod(job: Object) -> Object:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": RUN,
        "uid": f"uid-{RUN}-job",
        "controller": True,
    }
    template = copy.deepcopy(job["spec"]["template"])
    about = _about(f"{RUN}-0-abcde", ownerReferences=[owner])
    about["labels"] = {**template["metadata"]["labels"], names.JOB_NAME: RUN}
    about["annotations"] = {names.COMPLETION_INDEX: "0", names.FAILURE_COUNT: "0"}
    ended = {"exitCode": 1, "signal": 9, "reason": "OOMKilled", "message": "{}", "finishedAt": _MADE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {**template["spec"], "nodeName": "node-a"},
        "status": {
            "phase": "Running",
            "startTime": _MADE,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "x",
                    "message": "y",
                    "lastTransitionTime": _MADE,
                },
                {"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"},
            ],
            "containerStatuses": [
                {
                    "name": names.CONTAINER,
                    "state": {"running": {"startedAt": _MADE}},
                    "lastState": {"terminated": ended},
                }
            ],
            "initContainerStatuses": [{"name": "mesh", "state": {"terminated": {**ended, "exitCode": 0}}}],
        },
    }


def _waiting_pod(job: Object) -> Object:
    """An earlier pod of the same worker, which waits for everything there is to wait for."""
    pod = _pod(job)
    pod["metadata"] |= {
        "name": f"{RUN}-0-aaaaa",
        "uid": "uid-waiting",
        "creationTimestamp": "2025-12-31T00:00:00Z",
    }
    pod["spec"].pop("nodeName")
    pod["spec"] |= {
        "schedulingGates": [{"name": "example.com/gate"}],
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        "imagePullSecrets": [{"name": "registry"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": names.GPU_PRODUCT, "operator": "In", "values": ["A100"]}
                            ]
                        }
                    ]
                }
            }
        },
    }
    pod["spec"]["volumes"] = [
        *(pod["spec"].get("volumes") or []),
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {spot: a}."
    why = {"reason": "Unschedulable", "message": message, "lastTransitionTime": _MADE}
    pod["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", **why}],
        "containerStatuses": [
            {"name": names.CONTAINER, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
        ],
    }
    return pod


def _around(job: Object) -> list[Object]:
    about = {"kind": "Pod", "name": f"{RUN}-0-aaaaa", "uid": "uid-waiting"}
    when = {"firstTimestamp": _MADE, "lastTimestamp": _MADE, "eventTime": _MADE}
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "2", "rdma/hca": "1"}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "volumeName": "pv-1",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": _about("event"),
            "involvedObject": about,
            "reason": "FailedMount",
            "message": 'MountVolume.SetUp failed for volume "data" : no',
            "series": {"lastObservedTime": _MADE},
            **when,
        },
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": _about("refusal"),
            "involvedObject": {"kind": "Job", "name": RUN, "uid": job["metadata"]["uid"]},
            "reason": "FailedCreate",
            "message": "exceeded quota: q, requested: cpu=1, used: cpu=1, limited: cpu=1",
            **when,
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": _about(
                "node-a", labels={names.GPU_PRODUCT: "A100", "nvidia.com/gpu.memory": "81920"}
            ),
            "spec": {
                "taints": [{"key": "spot", "value": "a", "effect": "NoSchedule"}],
                "unschedulable": False,
            },
            "status": {
                "allocatable": dict(amounts),
                "capacity": dict(amounts),
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _MADE}],
                "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": _about("data", labels={"team": "vision"}),
            "spec": claim,
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": _about("pv-1"),
            "spec": {"persistentVolumeReclaimPolicy": "Delete"},
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": _about("fast", annotations={"storageclass.kubernetes.io/is-default-class": "true"}),
            "provisioner": "p",
            "reclaimPolicy": "Delete",
        },
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": _about("team", labels={names.SECURITY_LEVEL: "restricted"}),
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": _about("q"),
            "spec": {"hard": {"cpu": "1"}},
            "status": {"hard": {"cpu": "1"}, "used": {"cpu": "1"}},
        },
        *_what_only_doctor_reads(),
    ]


def _what_only_doctor_reads() -> list[Object]:
    template = {"spec": {"containers": [{"name": "manager", "image": "registry/kueue:v0.9.1"}]}}
    return [
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": _about("limits"),
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "default": {"cpu": "1"},
                        "defaultRequest": {"memory": "1Gi"},
                        "max": {"cpu": "4", "memory": "8Gi"},
                        "min": {"cpu": "10m"},
                    }
                ]
            },
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _about("deny"),
            "spec": {
                "podSelector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "c", "operator": "In"}],
                },
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    {
                        "from": [
                            {"podSelector": {}, "namespaceSelector": {"matchLabels": {"x": "y"}}},
                            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
                        ],
                        "ports": [{"port": 80, "endPort": 90, "protocol": "TCP"}],
                    }
                ],
                "egress": [{"to": [{"podSelector": {"matchLabels": {"a": "b"}}}]}],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _about("kube-dns-abcde", labels={"kubernetes.io/service-name": "kube-dns"}),
            "endpoints": [{"addresses": ["10.0.0.2"], "conditions": {"ready": True}}],
            "ports": [{"name": "dns", "port": 53}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _about("kueue-controller-manager", labels={"app.kubernetes.io/version": "v0.9.1"}),
            "spec": {"template": template},
            "status": {"readyReplicas": 1},
        },
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": _about("kueue"),
            "spec": {"holderIdentity": "x", "renewTime": _MADE, "leaseDurationSeconds": 15},
        },
        {
            "apiVersion": f"{_KUEUE}/v1beta1",
            "kind": "LocalQueue",
            "metadata": _about("queue"),
        },
    ]


_EVENTS = (
    {"kind": "worker-started", "at": _AT, "worker": 0, "pid": 1, "node": "node-a", "version": "1"},
    {"kind": "worker-running", "at": _AT, "worker": 0, "pids": {"0": 7}},
    {"kind": "failed", "at": _AT, "cause": {"summary": "rank 0 failed", "rank": 0, "worker": 0}},
    {"kind": "holding", "at": _AT, "until": _AT + 300},
)
LOG = b"".join(b"1767225600.001 0 [event] %s\n" % json.dumps(event).encode() for event in _EVENTS)
LOG += b"1767225600.004 0 [0] hello\n"

# Garbage

GARBAGE = st.one_of(
    st.sampled_from(
        [
            None, True, False, 0, -1, 1.5, 2**31 - 1, 2**63, -(2**63), 10**30, 1e308, "", "abc", "-1", "1e99",
            "9" * 400, "0-2147483647", "nan", "Infinity", TITLE, "\x9b2J\x07", "../../home/.ssh",
            "/etc/passwd", "..", "\x00", "a\nb", "{", "[]", "null", '{"at": 1e400}', "[" * 3000,
            "x" * 70_000, [], {}, [[]], [None], {"": None}, {"a": {"b": [1]}}, ["\x1b[2J"],
            "9999-12-31T23:59:59Z", "0001-01-01T00:00:00",
        ]
    ),
    st.text(max_size=20),
    st.integers(),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=2),
)  # fmt: skip


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value, that of JSON inside a text too (`None` leads into it)."""
    if place:
        yield place
    if isinstance(value, Mapping):
        for key in value:
            yield from places(value[key], (*place, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from places(each, (*place, number))
    elif isinstance(value, str) and value[:1] in ("{", "["):
        try:
            yield from places(json.loads(value), (*place, None))
        except (ValueError, RecursionError):  # garbled before, perhaps into a thousand brackets
            return


def replaced(value: Any, place: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of a value with something else at one place."""
    if not place:
        return change(value)
    first, rest = place[0], place[1:]
    if first is None:
        return json.dumps(replaced(json.loads(value), rest, change))
    if isinstance(value, list):
        return [replaced(each, rest, change) if at == first else each for at, each in enumerate(value)]
    return {key: replaced(each, rest, change) if key == first else each for key, each in value.items()}


@st.composite
def garbled(draw: st.DrawFn, objects: Sequence[Object]) -> list[Any]:
    """The objects, with one to three fields of one of them replaced by anything, or left out."""
    found = list(objects)
    at = draw(st.integers(0, len(found) - 1))
    obj: Any = found[at]
    for _ in range(draw(st.integers(1, 3))):
        where = list(places(obj)) if isinstance(obj, dict | list) else []
        if not where:
            break
        garbage = draw(GARBAGE)
        obj = replaced(obj, draw(st.sampled_from(where)), lambda _old, new=garbage: new)  # type: ignore[misc]
    found[at] = obj
    return found
