"""Objects of a real cluster, as they were in a situation: how they are written to `objects/`, and read there.

The tests that bring situations about write them with ECHELON_TAKE_OBJECTS=1; `test_workers.py`,
`test_observe.py` and `test_diagnose.py` read them, without a cluster. So the words of another version of
Kubernetes are taken in by running the former again."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.kubectl import Object
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.diagnose import Trouble, diagnose
from echelon.engines.kubernetes.pods import Pod

OBJECTS = Path(__file__).with_name("objects")
SENTENCES = Path(__file__).with_name("sentences.txt")
TAKE = "ECHELON_TAKE_OBJECTS"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The objects of a run as they were at one moment."""

    jobs: Sequence[Object]
    pods: Sequence[Object]
    events: Sequence[Object]
    nodes: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    at: float = 0.0

    def read_pods(self) -> list[Pod]:
        return typed(Pod, self.pods)

    def troubles(self, **more: Any) -> list[Trouble]:
        known = {
            "nodes": typed(shapes.Node, self.nodes),
            "claims": typed(shapes.Claim, self.claims),
            "now": self.at,
            **more,
        }
        return diagnose(
            jobs=self.jobs, pods=self.read_pods(), events=typed(shapes.Event, self.events), **known
        )


def keep(name: str, seen: Seen, namespace: str, **other: str) -> None:
    """Write the objects of a situation down, if that is asked for.

    What is different every time (the namespace, names of pods, whatever is in `other`) is written as if it
    were not, so that the sentences about it stay the same."""
    if not os.environ.get(TAKE):
        return
    chance = {namespace: "team", **{found: written for written, found in other.items()}}
    for number, pod in enumerate(seen.pods):
        chance[pod["metadata"]["name"]] = f"{pod['metadata']['name'][:-5]}pod{number:02}"
    names = {each["metadata"]["name"] for group in (seen.jobs, seen.pods) for each in group}
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in seen.pods
        for volume in pod["spec"].get("volumes") or []
        if volume.get("persistentVolumeClaim")
    }
    kept = {
        "jobs": [_trim(each) for each in seen.jobs],
        "pods": [_trim(each) for each in seen.pods],
        "events": [_trim(each) for each in seen.events if each["involvedObject"]["name"] in names | used],
        "nodes": [_trim_node(each) for each in seen.nodes],
        "claims": [_trim(each) for each in seen.claims if each["metadata"]["name"] in used],
    }
    # One object a line: short enough to keep, and what changes with a version can be seen.
    lines = [f'"at": {seen.at!r}']
    for kind, objects in kept.items():
        inner = ",\n".join(f"  {json.dumps(each, sort_keys=True)}" for each in objects)
        lines.append(f'"{kind}": [\n{inner}\n ]' if objects else f'"{kind}": []')
    text = "{\n " + ",\n ".join(lines) + "\n}\n"
    OBJECTS.mkdir(exist_ok=True)
    for found, written in chance.items():
        text = text.replace(found, written)
    (OBJECTS / f"{name}.json").write_text(text)


def load(name: str) -> Seen:
    """The objects of a situation, as they were written down."""
    return Seen(**json.loads((OBJECTS / f"{name}.json").read_text()))


_BOOKKEEPING = (
    "managedFields",
    "generateName",
    "resourceVersion",
    "generation",
    "selfLink",
    "ownerReferences",
)
_TOLD = ("kind", "reason", "message", "eventTime", "firstTimestamp", "lastTimestamp", "series", "count")
_ADDRESSES = ("hostIP", "hostIPs", "podIP", "podIPs", "allocatedResources", "resources", "observedGeneration")
_DEFAULTS = ("dnsPolicy", "schedulerName", "securityContext", "preemptionPolicy", "enableServiceLinks")


def _trim(obj: Object) -> Object:
    """An object without what nobody reads: the server's bookkeeping, and what the template says already."""
    if obj["kind"] == "Event":
        about = {key: obj["involvedObject"].get(key) for key in ("kind", "name", "uid")}
        made = {"creationTimestamp": obj["metadata"]["creationTimestamp"]}
        return {**{key: obj[key] for key in _TOLD if obj.get(key)}, "involvedObject": about, "metadata": made}
    kept = copy.deepcopy(obj)
    kept["metadata"] = {key: each for key, each in kept["metadata"].items() if key not in _BOOKKEEPING}
    if kept["kind"] == "Job":
        kept["spec"].pop("template", None)
        kept["spec"].pop("selector", None)
    if kept["kind"] == "Pod":
        kept["spec"] = {key: each for key, each in kept["spec"].items() if key not in _DEFAULTS}
        kept["status"] = {key: each for key, each in kept["status"].items() if key not in _ADDRESSES}
        for container in kept["spec"]["containers"]:
            container.pop("command", None)
        for status in kept["status"].get("containerStatuses", []):
            for field_name in (*_ADDRESSES, "containerID", "imageID", "user"):
                status.pop(field_name, None)
    return kept


def _trim_node(node: Object) -> Object:
    about, status = node["metadata"], node["status"]
    told = ("nvidia.com/gpu.product", "kubernetes.io/hostname")
    return {
        "metadata": {
            "name": about["name"],
            "labels": {key: each for key, each in about.get("labels", {}).items() if key in told},
        },
        "spec": {key: node["spec"][key] for key in ("taints", "unschedulable") if key in node["spec"]},
        "status": {
            "allocatable": status["allocatable"],
            "conditions": [
                {key: each[key] for key in ("type", "status", "reason", "lastTransitionTime")}
                for each in status["conditions"]
                if each["type"] == "Ready"
            ],
        },
    }
