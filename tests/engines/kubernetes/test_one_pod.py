"""The small pods that are made beside runs: of a copy, a notebook server and the check-up. What each of them
is, what its user sees, and that nothing stays; on a cluster in memory, with a clock that only they move."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.api_server import ApiServer, Asked, refused

from echelon.engines.kubernetes import names, one_pod
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.diagnose.trouble import PATIENCE
from echelon.engines.kubernetes.doctor import network, probe
from echelon.engines.kubernetes.files.copy_pod import reach_volume
from echelon.engines.kubernetes.notebook import servers
from echelon.engines.kubernetes.notebook.servers import PodNotebooks
from echelon.engines.notebook_servers import ServerSettings
from echelon.errors import EchelonError
from echelon.model.engine.finding import Finding
from echelon.model.engine.volume import Volume
from echelon.model.pods.pod import PodOptions
from echelon.model.resources import Resources

IMAGE = "my/image:1"
SAID = {"python": [3, 12, 1], "names": True, "mpi": None, "seconds": 0.01, "gloo": "eth0", "nccl": "eth0"}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:01Z"}}
ROOT = 'violates PodSecurity "restricted:latest": runAsNonRoot != true (pod must set runAsNonRoot=true)'


class Cluster(ApiServer):
    """One in which a Job gets its pod at once, in the state that `state` says; `events` are what its kubelet,
    its scheduler and its Job controller write.
    """

    def __init__(self, state: Callable[[Object], Object]) -> None:
        super().__init__(
            {"kind": "Namespace", "metadata": {"name": "team"}},
            {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "status": {"phase": "Bound"}},
        )
        self._before = set(self.objects)
        self.state = state
        self.made: list[Object] = []  # every Job that ever was
        self.events: dict[str, str] = {}
        self.forbids_root = False
        self.log = json.dumps(SAID).encode()
        self.after = self._control

    def _control(self, asked: Asked) -> None:
        if (asked.verb, asked.kind) != ("create", "Job"):
            return
        job = self.objects["Job", asked.name]
        self.made.append(job)
        if self.forbids_root and "runAsNonRoot" not in job["spec"]["template"]["spec"]["securityContext"]:
            self._note_event("Job", asked.name, "FailedCreate", f"Error creating: pods is forbidden: {ROOT}")
            return
        self.add_pod(job, f"{asked.name}-abcde", job["metadata"]["uid"])

    def add_pod(self, job: Object, name: str, owner: str) -> None:
        template = job["spec"]["template"]
        about = {
            **template["metadata"],
            "labels": {**template["metadata"]["labels"], names.JOB_NAME: job["metadata"]["name"]},
            "name": name,
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "Job", "name": "x", "uid": owner, "controller": True}],
        }
        pod = {"kind": "Pod", "metadata": about, "spec": {**template["spec"], "nodeName": f"node of {name}"}}
        self.objects["Pod", name] = pod | self.state(pod)
        for reason, message in self.events.items():
            self._note_event("Pod", name, reason, message)

    def _note_event(self, kind: str, name: str, reason: str, message: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.objects["Event", f"{name}.{reason}"] = {
            "kind": "Event",
            "metadata": {"name": f"{name}.{reason}"},
            "involvedObject": {"kind": kind, "name": name},
            "reason": reason,
            "message": message,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }

    def left(self) -> set[str]:
        """What is there that was made."""
        return {f"{kind} {name}" for kind, name in set(self.objects) - self._before if kind != "Event"}


def in_state(state: Object, **status: Any) -> Callable[[Object], Object]:
    statuses = [{"name": names.CONTAINER, "state": state}]
    return lambda _pod: {
        "status": {"phase": "Pending", "podIP": "10.0.0.1", "containerStatuses": statuses, **status}
    }


def well(pod: Object) -> Object:
    """What becomes of a pod where all is well: the check-up's end, the others go on."""
    ends = pod["metadata"]["labels"][names.COMPONENT] == names.DOCTOR
    return in_state(ENDED if ends else RUNNING, phase="Succeeded" if ends else "Running")(pod)


NO_IMAGE = in_state({"waiting": {"reason": "ErrImagePull", "message": f"{IMAGE}: not found"}})


def no_node(pod: Object) -> Object:
    """What the scheduler writes into a pod that fits nowhere."""
    pod["spec"].pop("nodeName")
    why = "0/2 nodes are available: 2 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    return {"status": {"phase": "Pending", "conditions": [condition]}}


Told = list[str]
User = Callable[[Api, Told], object]


def copy(api: Api, told: Told) -> object:
    volume = Volume(
        name="data", status="Bound", size=1, modes=("ReadWriteOnce",), storage_class="", reclaim=None
    )
    with reach_volume(api, volume, PodOptions(image=IMAGE), owner="ann", writes=True, notice=told.append):
        return "reached"


def notebook(api: Api, told: Told) -> object:
    asked = ServerSettings(pod=PodOptions(image=IMAGE), resources=Resources(), files=None)
    found = PodNotebooks(lambda: api).up("ann", asked, told.append)
    PodNotebooks(lambda: api).down("ann", volumes=False)
    return found.created


def image(api: Api, _told: Told) -> object:
    return lines(probe.probe_image(api, IMAGE))


def pair(api: Api, _told: Told) -> object:
    return lines(network.probe_network(api, IMAGE))


def lines(found: Any) -> list[tuple[str, str]]:
    def line(each: Finding) -> tuple[str, str]:
        return f"{each.level} {each.what}", f"{each.found} | {each.fix}"

    return [line(each) for each in found]


ALL: list[User] = [copy, notebook, image, pair]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Time goes by when somebody waits."""
    now = [1000.0]

    def sleep(seconds: float) -> None:
        now[0] += max(seconds, 1.0)

    made = SimpleNamespace(monotonic=lambda: now[0], time=time.time, sleep=sleep)
    monkeypatch.setattr(one_pod, "time", made)
    monkeypatch.setattr(servers, "_answers", lambda *_: True)
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path))
    return made


def outcome(cluster: Cluster, use: User) -> tuple[Any, Told]:
    """What a user is told at the end, and before; nothing stays in any case."""
    told: Told = []
    try:
        end = use(cluster.api, told)
    except EchelonError as error:
        end = (error.exit_code, f"{error.message} | {error.hint}")
    assert cluster.left() == set(), end
    return end, told


@pytest.mark.parametrize("use", ALL)
@pytest.mark.parametrize("known", [True, False])
def test_where_all_is_well(use: User, known: bool) -> None:
    cluster = Cluster(well)
    if not known:
        cluster.denied = {"get Namespace"}
    end, told = outcome(cluster, use)
    assert told == []
    assert end in ("reached", True) or {level.split()[0] for level, _ in end} <= {"ok", "degraded"}, end
    for job in cluster.made:
        spec = job["spec"]["template"]["spec"]
        assert "runAsNonRoot" not in spec["securityContext"]
        assert (spec["restartPolicy"], spec["enableServiceLinks"]) == ("Never", False)
        assert spec["automountServiceAccountToken"] is False
        assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
        about = job["spec"]["template"]["metadata"]
        assert about["labels"][names.NO_SIDECAR] == about["annotations"][names.NO_SIDECAR] == "false"
        assert job["metadata"]["labels"].items() <= about["labels"].items()
        lasts = job["spec"].get("ttlSecondsAfterFinished", 0), job["spec"].get("activeDeadlineSeconds", 0)
        assert all(lasts) is (use is not notebook), "it goes by itself, but for what is used for days"


@pytest.mark.parametrize("use", ALL)
@pytest.mark.parametrize("known", [True, False])
def test_where_no_pod_may_run_as_root(use: User, known: bool) -> None:
    """Whoever may read the level is right at once, all others at the second try."""
    cluster = Cluster(well)
    cluster.forbids_root = True
    if known:
        about = {"name": "team", "labels": {names.SECURITY_LEVEL: "restricted"}}
        cluster.objects["Namespace", "team"] = {"kind": "Namespace", "metadata": about}
    else:
        cluster.denied = {"get Namespace"}
    end, _ = outcome(cluster, use)
    assert end in ("reached", True) or {level.split()[0] for level, _ in end} <= {"ok", "degraded"}, end
    for job in cluster.made[0 if known else 1 :: 1 if known else 2]:
        assert job["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("use", ALL)
def test_a_pod_that_only_has_the_labels_is_not_used(use: User) -> None:
    """It is there first, and seems to run."""
    cluster = Cluster(well)
    real = cluster.after

    def pose(asked: Asked) -> None:
        if (asked.verb, asked.kind) == ("create", "Job"):
            job = cluster.objects["Job", asked.name]
            cluster.logs[f"{asked.name}-zzzzz"] = b"{}"
            cluster.add_pod(job, f"{asked.name}-zzzzz", "another")
        real(asked)

    cluster.after = pose
    told: Told = []
    end: Any = use(cluster.api, told)
    assert end in ("reached", True) or "ok image" in dict(end) or "ok network" in dict(end), end
    assert {name[-5:] for kind, name in cluster.objects if kind == "Pod"} == {"zzzzz"}, "its own is gone"


@pytest.mark.parametrize(
    ("use", "code", "words"),
    [
        (copy, 119, ("image my/image:1 does not exist", "check its name and tag")),
        (notebook, 122, ("image my/image:1 does not exist", "check its name and tag")),
        (image, "missing image", ("image my/image:1 does not exist | --image: check its name",)),
        (pair, "missing image", ("image my/image:1 does not exist | --image: check its name",)),
    ],
)
def test_an_image_that_does_not_exist(
    use: User, code: object, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(NO_IMAGE)
    cluster.events = {"Failed": f'Failed to pull image "{IMAGE}": not found'}
    if use is notebook:  # it gives up when a run would, two minutes after the kubelet has begun to say so
        monkeypatch.setitem(PATIENCE, "image", 0.0)
    end, told = outcome(cluster, use)
    ((found, text),) = [end] if isinstance(end, tuple) else end
    assert found == code
    for each in words:
        assert each in text
    if use is copy:
        (line,) = told
        assert line.endswith(
            "(check its name and tag, and give it with --image; the copy ends if it lasts 45 s)"
        )


@pytest.mark.parametrize(
    ("use", "code", "words"),
    [
        (copy, 119, ("no node has room for the pod that copies",)),
        (image, "degraded image", ("no node has room for a pod with the image",)),
        (pair, "degraded image", ("no node has room for the first pod",)),
    ],
)
def test_a_pod_that_fits_nowhere(use: User, code: object, words: tuple[str, ...]) -> None:
    end, told = outcome(Cluster(no_node), use)
    ((found, text),) = [end] if isinstance(end, tuple) else end
    assert found == code
    for each in words:
        assert each in text
    assert all("the copy ends" not in each for each in told), "others may leave"


def test_two_pods_that_find_one_node() -> None:
    """A check-up is quick: it does not wait until others have ended."""
    cluster = Cluster(
        lambda pod: (
            no_node(pod) if pod["metadata"]["name"].rpartition("-")[0].endswith("-1") else running(pod)
        )
    )
    end, _ = outcome(cluster, pair)
    ((found, text),) = end
    assert found == "degraded network"
    assert "no second pod has started on another node, so nothing was sent" in text
    assert "no node has room for the second pod" in text


def running(pod: Object) -> Object:
    return in_state(RUNNING, phase="Running")(pod)


@pytest.mark.parametrize("use", ALL)
def test_a_pod_that_was_lost_is_not_waited_for(use: User) -> None:
    """Its Job has ended with it."""

    def lost(pod: Object) -> Object:
        for (kind, _), job in cluster.objects.items():
            if kind == "Job":
                job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        return {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}}

    cluster = Cluster(lost)
    end, _ = outcome(cluster, use)
    ((code, text),) = [end] if isinstance(end, tuple) else end
    assert code in (119, "degraded image")
    assert "The node was low on memory" in text


def test_what_was_made_goes_when_what_belongs_to_it_is_refused() -> None:
    cluster = Cluster(well)

    def full(asked: Asked) -> None:
        if (asked.verb, asked.kind) == ("create", "ConfigMap"):
            raise refused(403, "Forbidden", 'configmaps "x" is forbidden: exceeded quota: team')

    cluster.rules.append(full)
    (code, text), _ = outcome(cluster, copy)
    assert code == 122
    assert "exceeded quota" in text
