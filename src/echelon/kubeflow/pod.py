"""The pod template of a replica: what echelon has a setting for, and the rest as a template of ours. Pure.

Nothing is dropped without a note: what Kubernetes or Kubeflow do not know is refused, what a setting says is
taken over, what echelon's own pods decide otherwise is noted, all else goes through untouched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from echelon.kubeflow.expansion import fill, fill_command
from echelon.kubeflow.nodes import Node, child, fields, items, note, optional_text, plain, refuse, text, texts
from echelon.kubeflow.outside import NOWHERE, Outside
from echelon.kubeflow.pod_fields import CONTAINER_FIELDS, POD_FIELDS
from echelon.kubeflow.resources import Needs, read_needs
from echelon.kubeflow.volumes import Volume, free_name, read_volumes, template_volumes
from echelon.model.pods.pod import SIDECAR
from echelon.model.pods.template import CONTAINER
from echelon.values import frozen

_SAID_BY_SETTINGS = ("name", "image", "command", "args", "env", "resources", "imagePullPolicy")
_OURS = {
    "terminationMessagePath": "the agent leaves the cause of a failure there",
    "terminationMessagePolicy": "the agent leaves the cause of a failure there",
}
_OURS_OF_POD = {
    "automountServiceAccountToken": "echelon's pods get no token",
    "enableServiceLinks": "echelon's pods have none",
    "activeDeadlineSeconds": "a run has runPolicy.activeDeadlineSeconds",
    "hostname": "the Job controller names the pods",
    "subdomain": "the Job controller names the pods",
    "nodeName": "nodes are chosen when the run starts; nodeSelector narrows the choice",
    "resources": "a run has requests of containers",
}
EXPRESSION = re.compile(r"\{\{-?\s*(?:[.$]|(?:include|template|if|range|toYaml)\s)")
"""An expression of a template language that is not filled in: Go's, of Helm."""
RENDER = "render the template first, as with helm template"


@frozen
class Worker:
    """One pod of a replica type, as echelon sees it. `template` holds what no setting says; with the
    volumes, in `whole`, for a role whose volumes differ from the others'.
    """

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    image: str
    pull: str | None = None
    needs: Needs
    workdir: str | None = None
    volumes: tuple[Volume, ...] = ()
    unknown_env: tuple[str, ...] = ()  # variables whose values only the cluster has
    template: Mapping[str, Any] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Reader:
    """What the reading of one kind's pods depends on.

    `container` is the name that the ranks' container must have, None for the first; `wired` tells whether a
    variable is one that the kind's workers get when they start; `default_command` is run where there is none.
    """

    container: str | None
    wired: Callable[[str], bool]
    outside: Outside = NOWHERE
    default_command: tuple[str, ...] = ()


def read_pod(template: Node, reader: Reader, notes: list[str]) -> Worker:
    """Read a pod template (`metadata` and `spec`)."""
    parts = fields(template, ("metadata", "spec", "apiVersion", "kind"))
    spec = child(template, "spec")
    pod = fields(spec, POD_FIELDS)
    containers = items(child(spec, "containers"))
    main = _main_container(spec, containers, reader.container)
    about = fields(main, CONTAINER_FIELDS)
    refuse_template_expressions(template)
    env, later, open_ended = _environment(about)
    image = text(child(main, "image"))
    command, args = fill_command(
        *_started(about, image, reader),
        env,
        lambda name: name in later or open_ended or reader.wired(name),
    )
    if not command:
        raise refuse(
            Node(value=text(child(main, "name")), at=main.at),
            "has no command, and only its image knows what it starts",
            "its registry does not tell; add command: as the Dockerfile has ENTRYPOINT: [python, train.py]",
        )
    others = [each for each in containers if each is not main]
    others += items(pod.get("initContainers"))
    for other in others:
        fields(other, CONTAINER_FIELDS)
    volumes = tuple(read_volumes(main, spec, shared=bool(others)))
    rest = _rest(parts, pod, main, containers, notes)
    said = [each for each in volumes if not each.mount and each.memory is None]
    shown = [each for each in volumes if each.memory is None]
    elsewhere = _volumes_of(others, pod)
    return Worker(
        command=command,
        args=args,
        env=env,
        image=image,
        pull=_pull(about, image, notes),
        needs=read_needs(about.get("resources"), notes),
        workdir=optional_text(about.get("workingDir")),
        volumes=volumes,
        unknown_env=(*later, *(["envFrom"] if open_ended else [])),
        template=_with_volumes(rest, said, elsewhere),
        whole=_with_volumes(rest, shown, elsewhere),
    )


def refuse_template_expressions(node: Node) -> None:
    """Raise InvalidJob for an expression of a template language that nothing has filled in."""
    if isinstance(node.value, str):
        if EXPRESSION.search(node.value):
            raise refuse(node, "holds a template's expression", RENDER)
    elif isinstance(node.value, Mapping):
        for each in fields(node).values():
            refuse_template_expressions(each)
    elif isinstance(node.value, list):
        for each in items(node):
            refuse_template_expressions(each)


def _main_container(spec: Node, containers: Sequence[Node], name: str | None) -> Node:
    named = {}
    for each in containers:
        named[text(child(each, "name"))] = each
    if not containers:
        raise refuse(child(spec, "containers"), "is empty", "a pod has at least one container")
    if name is None:
        return containers[0]
    if name not in named:
        at = child(spec, "containers")
        there = ", ".join(named)
        raise refuse(
            Node(value=there, at=at.at),
            f"has no container named {name}",
            f"name: {name} is the one that trains",
        )
    return named[name]


def _environment(about: Mapping[str, Node]) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """The variables whose values are in the manifest; the names of others; whether there may be more."""
    env: dict[str, str] = {}
    later = []
    for each in items(about.get("env")):
        parts = fields(each, ("name", "value", "valueFrom"))
        name = text(child(each, "name"))
        if "valueFrom" in parts:
            later.append(name)
        else:
            env[name] = fill(text(parts["value"]) if "value" in parts else "", env)
    return env, tuple(later), "envFrom" in about


def _started(about: Mapping[str, Node], image: str, reader: Reader) -> tuple[Sequence[str], Sequence[str]]:
    """The command and its arguments; without a command the image's own, whose arguments `args` replaces."""
    command, args = texts(about.get("command")), texts(about.get("args"))
    if command or reader.default_command:
        return command or reader.default_command, args
    start = reader.outside.find_start(image)
    if start is None:
        return (), ()
    entrypoint, usual = start
    return (entrypoint, args or usual) if entrypoint else (args or usual, ())


def _pull(about: Mapping[str, Node], image: str, notes: list[str]) -> str | None:
    """Without a policy, the tag decides, as in Kubernetes."""
    policy = about.get("imagePullPolicy")
    if policy is None:
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
        return "always" if tag in ("", "latest") and "@" not in image else None
    if text(policy) == "Never":
        notes.append(note(policy, "the image is pulled where a node lacks it"))
    return "always" if text(policy) == "Always" else None


def _rest(
    parts: Mapping[str, Node],
    pod: Mapping[str, Node],
    main: Node,
    containers: Sequence[Node],
    notes: list[str],
) -> dict[str, Any]:
    """The pod template without what settings say, and without its volumes."""
    spec = {name: plain(each.value) for name, each in pod.items() if name not in ("containers", "volumes")}
    spec.pop("restartPolicy", None)  # the replica's holds, as in Kubeflow
    for name, why in _OURS_OF_POD.items():
        if name in spec and spec.pop(name) is not False:
            notes.append(note(pod[name], why))
    affinity = spec.get("affinity")
    if isinstance(affinity, dict) and affinity.pop("nodeAffinity", None) is not None:
        notes.append(note(child(pod["affinity"], "nodeAffinity"), "echelon chooses nodes; say nodeSelector"))
        if not affinity:
            del spec["affinity"]
    worker = _rest_of_container(main, notes)
    others = [_with_free_names(plain(each.value)) for each in containers if each is not main]
    if "initContainers" in spec:
        spec["initContainers"] = [_with_free_names(each) for each in spec["initContainers"]]
    if worker or others:
        spec["containers"] = [{"name": CONTAINER, **worker}, *others]
    made: dict[str, Any] = {}
    if "metadata" in parts and (metadata := _metadata(parts["metadata"], notes)):
        made["metadata"] = metadata
    if spec:
        made["spec"] = spec
    return made


def _rest_of_container(main: Node, notes: list[str]) -> dict[str, Any]:
    about = fields(main)
    found = {
        name: plain(each.value)
        for name, each in about.items()
        if name not in (*_SAID_BY_SETTINGS, "volumeMounts")
    }
    for name, why in _OURS.items():
        if found.pop(name, None) is not None:
            notes.append(note(about[name], why))
    security = found.get("securityContext")
    if isinstance(security, dict):
        raised = [name for name in ("privileged", "allowPrivilegeEscalation") if security.pop(name, None)]
        notes += [note(child(about["securityContext"], name), "echelon's pods never are") for name in raised]
        if not security:
            del found["securityContext"]
    later = [plain(each.value) for each in items(about.get("env")) if "valueFrom" in fields(each)]
    return {**found, **({"env": later} if later else {})}


def _metadata(node: Node, notes: list[str]) -> dict[str, Any]:
    """Labels and annotations; what `kubectl get` adds is no wish of the user's."""
    parts = fields(node)
    made = {}
    for name in ("labels", "annotations"):
        if name in parts:
            given = fields(parts[name])
            sidecar = given.pop(SIDECAR, None)
            if sidecar is not None and text(sidecar) != "false":  # echelon's own pods have that
                notes.append(note(sidecar, "echelon's pods get no sidecar: one would keep them from ending"))
            made[name] = {key: text(value) for key, value in given.items()}
    named = [parts[name] for name in ("name", "generateName", "namespace") if name in parts]
    notes += [note(each, "the Job controller names the pods") for each in named]
    return {name: value for name, value in made.items() if value}


def _volumes_of(others: Sequence[Node], pod: Mapping[str, Node]) -> list[Mapping[str, Any]]:
    used = {text(child(each, "name")) for one in others for each in items(fields(one).get("volumeMounts"))}
    return [plain(each.value) for each in items(pod.get("volumes")) if text(child(each, "name")) in used]


def _with_free_names(container: dict[str, Any]) -> dict[str, Any]:
    if not container.get("volumeMounts"):
        return container
    mounts = [{**each, "name": free_name(each["name"])} for each in container["volumeMounts"]]
    return {**container, "volumeMounts": mounts}


def _with_volumes(
    rest: Mapping[str, Any], volumes: Sequence[Volume], elsewhere: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    sources, mounts = template_volumes(volumes, elsewhere)
    if not sources:
        return dict(rest)
    spec = dict(rest.get("spec", {}))
    containers = list(spec.get("containers", [{"name": CONTAINER}]))
    if mounts:
        containers[0] = {**containers[0], "volumeMounts": mounts}
    return {**rest, "spec": {**spec, "containers": containers, "volumes": sources}}
