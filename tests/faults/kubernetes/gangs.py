"""Nodes that exist in the API only, and a kubelet for them that the test plays: pods run, and end when their
whole gang runs. What happened is read from watches. `python -m tests.faults.kubernetes.gangs` is a foreground
command without a terminal: it submits a run, or stays with one, until the end is in the record.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from testbed.fakenodes import SELECTOR
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE

from echelon import tending
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.client.place import Place
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.engines.kubernetes.follow.view import read_record
from echelon.engines.kubernetes.upkeep import decisions, tend
from echelon.errors import EchelonError, RunExists, Unreachable
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.pods.pod import PodOptions, Toleration
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.submit import Prepared, submit

TAINT = "test.echelon.dev/gangs"
GPUS = 4
LASTS = 1.0  # seconds that a gang runs, so that others wait for it
_READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}


def add_nodes(kubectl: Kubectl, count: int) -> list[str]:
    """Nodes with four GPUs each, which take only pods that tolerate them."""
    made = [f"gang-{number}" for number in range(count)]
    room = {"cpu": "64", "memory": "64Gi", "pods": "110", "ephemeral-storage": "1Ti", names.GPU: str(GPUS)}
    for name in made:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", names.GPU_PRODUCT: "Test"}
        key, value = SELECTOR.split("=")
        labels[key] = value  # no other test takes it for a real one, and all of them are removed
        about = {"name": name, "labels": labels}
        spec = {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}
        kubectl.create({"apiVersion": "v1", "kind": "Node", "metadata": about, "spec": spec})
        kubectl.patch("node", name, {"status": {"capacity": room, "allocatable": room}}, subresource="status")
    return made


@dataclass
class Story:
    """What the watches have shown of one run."""

    size: int
    starts: int = 0  # its first Job was started so often
    stops: int = 0  # and suspended again
    suspended: bool = True
    bound: dict[str, str] = field(default_factory=dict)  # pods on nodes, and which worker each is
    twice: set[str] = field(default_factory=set)  # workers that had two pods at once
    whole: bool = False
    runs_since: float | None = None
    partly_since: float | None = None
    partly_longest: float = 0.0


class Kubelet:
    """Runs the pods of a namespace on the nodes above, and keeps the story of each run."""

    def __init__(self, api: Api, nodes: list[str], sizes: dict[str, int]) -> None:
        self._api, self._nodes = api, nodes
        self.stories = {run: Story(size=size) for run, size in sizes.items()}
        self._left = threading.Event()
        self.troubles: list[str] = []
        self._threads = [
            threading.Thread(target=self._repeat, args=(work, pause), daemon=True)
            for work, pause in ((self._beat, 5.0), (self._run_pods, 0.3), (self._watch_jobs, 0.1))
        ]

    def __enter__(self) -> Self:
        self._beat()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _repeat(self, work: Any, pause: float) -> None:
        while not self._left.wait(pause):
            try:
                work()
            except EchelonError as error:
                self.troubles.append(str(error))

    def _beat(self) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for name in self._nodes:
            change = {"status": {"conditions": [{**_READY, "lastHeartbeatTime": at}]}}
            self._api.patch("Node", name, change, subresource="status")

    def _watch_jobs(self) -> None:
        """Every change of a Job, without a gap: how often it was started, and suspended again."""
        listed = self._api.list("Job", selector=f"{names.COMPONENT}={names.WORKER}")
        for job in listed.items:
            self._note_job(job)
        version = listed.version
        while not self._left.is_set():
            with self._api.watch(
                "Job", dict, selector=f"{names.COMPONENT}={names.WORKER}", version=version, timeout=5.0
            ) as changes:
                for _, newer, changed in changes:
                    version = newer
                    if changed is not None:
                        self._note_job(changed)

    def _note_job(self, job: Object) -> None:
        about = job["metadata"]
        story = self.stories.get(about["name"])
        suspended = bool(job["spec"].get("suspend"))
        if story is None or suspended == story.suspended:
            return
        story.suspended = suspended
        story.starts, story.stops = story.starts + (not suspended), story.stops + suspended
        if suspended:
            story.whole = False

    def _run_pods(self) -> None:
        pods = self._api.list("Pod", selector=f"{names.COMPONENT}={names.WORKER}").items
        running: dict[str, list[Object]] = {run: [] for run in self.stories}
        bound: dict[str, dict[str, str]] = {run: {} for run in self.stories}
        for pod in pods:
            about, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
            run = about["labels"][names.RUN]
            if about.get("deletionTimestamp"):
                self._api.delete("Pod", about["name"], grace=0)
            elif pod["spec"].get("nodeName") and phase not in ("Succeeded", "Failed"):
                job, index = about["labels"][names.JOB_NAME], about["labels"][names.COMPLETION_INDEX]
                bound[run][about["name"]] = f"{job}/{index}"
                if phase == "Running":
                    running[run].append(pod)
                else:
                    self._set(pod, "Running", {"running": {"startedAt": _now()}})
        for run, story in self.stories.items():
            self._note_pods(story, bound[run])
            if len(running[run]) < story.size:
                story.runs_since = None
                continue
            story.runs_since = story.runs_since or time.monotonic()
            if time.monotonic() - story.runs_since > LASTS:
                for pod in running[run]:
                    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": _now(), "startedAt": _now()}
                    self._set(pod, "Succeeded", {"terminated": ended})

    def _note_pods(self, story: Story, bound: dict[str, str]) -> None:
        workers = list(bound.values())
        story.twice.update(worker for worker in workers if workers.count(worker) > 1)
        story.whole = story.whole or len(set(workers)) == story.size
        if not story.whole and workers:
            story.partly_since = story.partly_since or time.monotonic()
            story.partly_longest = max(story.partly_longest, time.monotonic() - story.partly_since)
        else:
            story.partly_since = None
        story.bound = bound

    def _set(self, pod: Object, phase: str, state: Object) -> None:
        ready = "True" if phase == "Running" else "False"
        status = {
            "phase": phase,
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": ready},
                {"type": "ContainersReady", "status": ready},
            ],
            "containerStatuses": [
                {
                    "name": names.CONTAINER,
                    "state": state,
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "image": "none",
                    "imageID": "none",
                }
            ],
        }
        with suppress(EchelonError):  # it is gone, or has changed: the next look sees
            self._api.patch("Pod", pod["metadata"]["name"], {"status": status}, subresource="status")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def job_of(name: str, workers: int, gpus: int) -> Job:
    """A gang for the nodes above. Its results are of no interest."""
    pod = PodOptions(image="none", tolerations=(Toleration(key=TAINT),), linger=0.0)
    return Job(
        name=name,
        command=("true",),
        python="python3",
        framework="plain",
        workers=workers,
        resources=Resources(gpus=gpus),
        pod=pod,
    )


def main() -> None:
    """Submit NAMESPACE NAME WORKERS GPUS, or stay with that run, until its end is kept."""
    namespace, name, workers, gpus = sys.argv[1:]
    decisions.BINDING, decisions.NOT_OURS, tend._LOOK_AROUND = 6.0, 3.0, 2.0
    tending._ADMISSION = 0.5, 2.0
    engine = KubernetesEngine(Place(namespace=namespace))
    ref = RunRef(engine="k8s", name=name, namespace=namespace)
    print("begins", flush=True)
    _submit(job_of(name, int(workers), int(gpus)), engine)
    with Run(ref, engine).tending(take_over=True):
        while True:
            with suppress(Unreachable):  # a machine with much to do
                if read_record(engine.api, ref).end is not None:
                    return
            time.sleep(0.5)


def _submit(job: Job, engine: KubernetesEngine) -> None:
    """Submit a run, unless it is there. What a machine with much to do has cut off is said again, as its user
    would: a submission under the same name is taken up, or says that the run exists.
    """
    while True:
        with suppress(Unreachable):
            with suppress(RunExists):
                submit(Prepared(job=job), engine)
            return


if __name__ == "__main__":
    main()
