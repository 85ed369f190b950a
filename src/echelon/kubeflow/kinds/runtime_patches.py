"""What a TrainJob changes in the pods of its runtime: `runtimePatches`, and the two forms that older releases
of Trainer have. All are strategic merges of pod templates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from echelon.kubeflow.nodes import Node, child, fields, items, note, refuse, text
from echelon.model.pods.patch import LIST_KEYS, apply_patch

FORMS = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
_TARGETS = "targetJobs"


def apply_patches(
    template: Node, job: Mapping[str, Node], name: str, others: Collection[str], notes: list[str]
) -> Node:
    """The pod template of the runtime's job `name` with what the TrainJob's spec changes in it. What it
    changes in `others`, which are not run, is noted.
    """
    _check_lists(template)
    value = template.value
    for target, patch in (each for form in FORMS if form in job for each in _READERS[form](job[form], notes)):
        if text(target) == name:
            _check_lists(patch)
            value = apply_patch(patch.value, value)
        elif text(target) in others:
            notes.append(note(target, f"{text(target)} is not run"))
        else:
            there = ", ".join([name, *others])
            raise refuse(target, "is not a job of the runtime", f"it has {there}")
    return replace(template, value=value)


def _of_runtime(node: Node, notes: list[str]) -> Iterator[tuple[Node, Node]]:
    """The patches of pod templates in `runtimePatches`, each with the name of its job."""
    for each in items(node):
        spec = fields(each, ("manager", "time", "trainingRuntimeSpec")).get("trainingRuntimeSpec")
        jobset = None if spec is None else fields(spec, ("template",)).get("template")
        for job in [] if jobset is None else items(_inner(jobset, ("replicatedJobs",), notes)):
            pod = fields(job, ("name", "template")).get("template")
            patch = None if pod is None else _inner(pod, ("template",), notes)
            if patch is not None:
                fields(patch, ("metadata", "spec"))
                yield child(job, "name"), patch


def _inner(node: Node, known: tuple[str], notes: list[str]) -> Node | None:
    """The one field that the spec of a patched JobSet or Job may have; their own metadata is noted."""
    parts = fields(node, ("metadata", "spec"))
    if "metadata" in parts:
        notes.append(note(parts["metadata"], "the run has the labels and annotations of metadata"))
    return fields(parts["spec"], known).get(known[0]) if "spec" in parts else None


def _of_templates(node: Node, _notes: list[str]) -> Iterator[tuple[Node, Node]]:
    for each in items(node):
        parts = fields(each, (_TARGETS, "metadata", "spec"))
        patch = {name: part.value for name, part in parts.items() if name != _TARGETS}
        for target in items(child(each, _TARGETS)):
            yield child(target, "name"), Node(value=patch, at=each.at)


def _of_specs(node: Node, _notes: list[str]) -> Iterator[tuple[Node, Node]]:
    for each in items(node):
        spec = {name: part.value for name, part in fields(each).items() if name != _TARGETS}
        for target in items(child(each, _TARGETS)):
            yield child(target, "name"), Node(value={"spec": spec}, at=each.at)


_READERS = {
    "runtimePatches": _of_runtime,
    "podTemplateOverrides": _of_templates,
    "podSpecOverrides": _of_specs,
}


def _check_lists(node: Node) -> None:
    """Raise InvalidJob where an item of a list that is merged lacks what it is known by."""
    for name, each in fields(node).items():
        if name in LIST_KEYS:
            for item in items(each):
                child(item, LIST_KEYS[name])
                _check_lists(item)
        elif isinstance(each.value, Mapping):
            _check_lists(each)
