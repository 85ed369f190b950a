"""The testbed's cluster as a benchmark needs it: a namespace of its own, commands, the audit log.

Nothing here starts or ends the cluster: one that does not run is said, and there is nothing to measure.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from measure.processes import peak_of
from measure.rounds import PATIENCE, Workspace

Object = dict[str, Any]
_ROOT = str(Path(__file__).parents[2])  # the testbed is no part of what is installed
_SAMPLE = 0.01  # seconds between two looks at a process's memory
_FIELDS = ("name", "namespace", "labels", "annotations")  # of the metadata that whoever makes an object gives


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A namespace of the testbed, and how programs reach it."""

    namespace: str
    kubectl: Sequence[str]
    environment: Mapping[str, str]
    path: Path
    audit: Path
    image: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """A command from start to end, by the clock that all processes share; the most memory it took, in MB."""

    began: float
    ended: float
    lines: Sequence[tuple[float, str]]
    errors: str
    code: int
    peak: float


def missing() -> str:
    """Why there is no cluster to measure, in one line; nothing if there is one."""
    if _ROOT not in sys.path:
        sys.path.append(_ROOT)
    from testbed import cluster, controlplane, debian

    if reason := debian.missing():
        return reason
    claim = cluster.claim()
    ready = claim is not None and claim.complete and controlplane.is_ready()
    return "" if ready else "the Kubernetes testbed does not run"


@contextlib.contextmanager
def own_namespace(place: Workspace) -> Iterator[Cluster]:
    """A fresh namespace with the image `python` on every node; removed in the end with all that is in it."""
    from testbed import cluster, fixtures, paths, programs

    name = f"bench-{secrets.token_hex(3)}"
    program = [str(programs.program("kubernetes")), "kubectl", f"--kubeconfig={paths.KUBECONFIG}"]
    found = Cluster(
        namespace=name,
        kubectl=[*program, f"--namespace={name}"],
        environment={**place.environment, "KUBECONFIG": str(paths.KUBECONFIG), "ECHELON_ON": "k8s"},
        path=place.path,
        audit=paths.AUDIT_LOG,
        image=cluster.load_image("python"),
    )
    with fixtures.held(
        fixtures.USERS, shared=True
    ):  # a cluster that tests started stays as long as we use it
        kubectl(found, "create", "namespace", name)
        try:
            account = ["get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"]
            wait_for("the default service account", lambda: kubectl(found, *account))
            yield found
        finally:
            kubectl(found, "delete", "namespace", name, "--wait=true")


@contextlib.contextmanager
def fake_nodes(count: int) -> Iterator[Sequence[str]]:
    """Nodes in name only, tainted to keep other pods away; tests of the cluster wait meanwhile."""
    from testbed import fakenodes, fixtures

    with fixtures.held(fixtures.TURN):
        try:
            yield fakenodes.add(count, gpus_each=0, tainted=True)
        finally:
            fakenodes.remove()


def hear(cluster: Cluster, command: Sequence[str]) -> Heard:
    """Run a command, note when each line of its output comes, and how much memory it took at most."""
    began = time.time()
    process = subprocess.Popen(
        command,
        cwd=cluster.path,
        env=cluster.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peaks, errors = [0.0], [""]
    patience = threading.Timer(PATIENCE, process.kill)
    watchers = [
        threading.Thread(target=_watch_memory, args=(process, peaks)),
        threading.Thread(target=lambda: errors.append(process.stderr.read() if process.stderr else "")),
        patience,
    ]
    for each in watchers:
        each.start()
    assert process.stdout
    lines = [(time.time(), line) for line in process.stdout]
    code = process.wait()
    ended = time.time()
    patience.cancel()
    for each in watchers:
        each.join()
    return Heard(began=began, ended=ended, lines=lines, errors=errors[-1], code=code, peak=peaks[-1])


def heard_well(cluster: Cluster, command: Sequence[str]) -> Heard:
    """The same for a command that must succeed."""
    heard = hear(cluster, command)
    if heard.code:
        sys.exit(f"{' '.join(command)} ended with code {heard.code}:\n{heard.errors}")
    return heard


def kubectl(cluster: Cluster, *words: str) -> str:
    """What kubectl prints; its failure is ours."""
    return "".join(line for _, line in heard_well(cluster, [*cluster.kubectl, *words]).lines)


def wait_for(what: str, condition: Callable[[], object]) -> None:
    """Ask again and again; what does not come ends the benchmark."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {PATIENCE:g} s in vain for {what}")
        time.sleep(0.1)


def accepted(cluster: Cluster, since: int, resource: str, name: str) -> float:
    """When the API server had answered the creation of an object, by its audit log from that place on."""
    with cluster.audit.open() as file:
        file.seek(since)
        for line in file:
            entry = json.loads(line)
            about = entry.get("objectRef", {})
            known = about.get("namespace"), about.get("resource"), about.get("name")
            if entry["verb"] == "create" and known == (cluster.namespace, resource, name):
                return datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
    sys.exit(f"the audit log knows of no creation of {resource}/{name}")


def make_many(cluster: Cluster, path: str, objects: Sequence[Object]) -> None:
    """Make objects of one kind over one connection: a kubectl for each would take minutes."""
    from testbed.api import Api

    with Api("testbed:bench") as api:
        for obj in objects:
            status, answer = api.call("POST", path.format(namespace=cluster.namespace), obj)
            if status != 201:
                sys.exit(f"{obj['metadata']['name']} was refused: {answer.get('message')}")


def copy_of(obj: Object, name: str, to: str) -> Object:
    """An object under another name, everywhere in it; what the API server has added is left out."""
    bare = {key: value for key, value in obj.items() if key != "status"}
    bare["metadata"] = {key: obj["metadata"][key] for key in _FIELDS if key in obj["metadata"]}
    renamed: Object = json.loads(json.dumps(bare).replace(name, to))
    return renamed


def _watch_memory(process: subprocess.Popen[str], peaks: list[float]) -> None:
    while process.returncode is None:
        with contextlib.suppress(OSError, KeyError):  # it has ended
            peaks.append(max(peaks[-1], peak_of(process.pid)))
        time.sleep(_SAMPLE)
