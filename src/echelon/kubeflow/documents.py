"""The documents of YAML files: which of them is the job, and what the others are. Pure, but for the files.

A kind of job is one file beside this one, and one line in `KINDS`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.errors import InvalidJob
from echelon.jobfile import read_text
from echelon.jobfile.conversion import At, inside, wrong
from echelon.jobfile.document import parse_all
from echelon.kubeflow.kinds.jaxjob import read_jaxjob
from echelon.kubeflow.kinds.mpijob import read_mpijob_v1, read_mpijob_v2
from echelon.kubeflow.kinds.pytorchjob import read_pytorchjob
from echelon.kubeflow.kinds.tfjob import read_tfjob
from echelon.kubeflow.kinds.trainjob import RUNTIMES, read_trainjob, runtime_named
from echelon.kubeflow.kinds.xgboostjob import read_xgboostjob
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.nodes import Node, child, fields, merged, plain, refuse, text
from echelon.kubeflow.outside import NOWHERE, Outside
from echelon.kubeflow.pod import EXPRESSION, RENDER, refuse_template_expressions

TRAINJOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
KINDS: Mapping[tuple[str, str], Callable[[Node, Outside], Manifest]] = {
    ("kubeflow.org/v1", "PyTorchJob"): read_pytorchjob,
    ("kubeflow.org/v1", "TFJob"): read_tfjob,
    ("kubeflow.org/v1", "JAXJob"): read_jaxjob,
    ("kubeflow.org/v1", "XGBoostJob"): read_xgboostjob,
    ("kubeflow.org/v1", "MPIJob"): read_mpijob_v1,
    ("kubeflow.org/v2beta1", "MPIJob"): read_mpijob_v2,
}
_JOBS = ("PyTorchJob", "TFJob", "JAXJob", "XGBoostJob", "MPIJob", "TrainJob")
_NOT_WIRED = {"PaddleJob": "PaddlePaddle", "MXJob": "MXNet"}
_DOCUMENT = ("apiVersion", "kind", "metadata", "spec", "status")


def read_manifest(paths: Path | Sequence[Path], outside: Outside = NOWHERE) -> Manifest | None:
    """Read a file of Kubernetes objects, one of which is a Kubeflow job; None for any other file. The
    objects may be in several files, as kubectl takes them; then each holds some.
    """
    files = [paths] if isinstance(paths, Path) else paths
    nodes: list[Node] = []
    for path in files:
        found = _objects_in(path)
        if found is None and len(files) > 1:
            hint = "a job file of echelon's is given alone; several are a Kubeflow job and what it needs"
            raise InvalidJob("file", str(path), "holds no object of Kubernetes", hint=hint)
        if found is None:
            return None
        nodes += found
    job = _job_among(nodes)
    others = [each for each in nodes if each is not job]
    return _read(job, others, outside)


def _objects_in(path: Path) -> list[Node] | None:
    """The documents of a file of Kubernetes objects; None for any other file."""
    source = str(path)
    content = read_text(path)
    if "apiVersion" not in content and "kind" not in content:
        return None
    try:
        documents = parse_all(content, source)
    except InvalidJob:
        for number, line in enumerate(content.splitlines(), 1):
            if EXPRESSION.search(line):
                raise InvalidJob(
                    f"{source}:{number}", line.strip()[:80], "holds a template's expression", hint=RENDER
                ) from None
        raise
    nodes = [Node(value=merged(data), at=At(source=source, lines=lines)) for data, lines in documents]
    if not any(
        isinstance(each.value, Mapping) and {"apiVersion", "kind"} & set(each.value) for each in nodes
    ):
        return None
    for each in nodes:
        text(child(each, "apiVersion"))
        text(child(each, "kind"))
    return nodes


def read_document(document: Mapping[str, Any], outside: Outside = NOWHERE) -> Manifest:
    """Read a job that is not in a file, but an object in Python."""
    node = Node(value=_written(document), at=At(source=str(document.get("kind", "job"))))
    return _read(_job_among([node]), [], outside)


def _read(job: Node, others: Sequence[Node], outside: Outside) -> Manifest:
    refuse_template_expressions(job)
    fields(job, _DOCUMENT)
    which = (text(child(job, "apiVersion")), text(child(job, "kind")))
    if which == TRAINJOB:
        kind, name = runtime_named(job)
        runtime = _runtime(job, kind, name, others, outside)
        manifest = read_trainjob(job, runtime, outside)
    else:
        manifest = KINDS[which](job, outside)
    objects: list[Mapping[str, Any]] = []
    runtimes: list[Mapping[str, Any]] = []
    for each in others:
        text(child(child(each, "metadata"), "name"))
        (runtimes if text(child(each, "kind")) in RUNTIMES else objects).append(plain(each.value))
    return replace(manifest, document=plain(job.value), objects=tuple(objects), runtimes=tuple(runtimes))


def _job_among(nodes: Sequence[Node]) -> Node:
    jobs = [each for each in nodes if _is_job(each)]
    if len(jobs) > 1:
        first, second = jobs[0].at.source, jobs[1].at.source
        among, hint = (
            ("in this file", "split the file") if first == second else (f"beside {first}", "give one")
        )
        raise refuse(child(jobs[1], "kind"), f"is a second job {among}", f"a run is one job: {hint}")
    if jobs:
        return jobs[0]
    close = [
        (each, near[0])
        for each in nodes
        if not _is_of_batch(each)
        and (near := difflib.get_close_matches(text(child(each, "kind")), _JOBS, n=1))
    ]
    if close:
        node, likely = close[0]
        raise refuse(child(node, "kind"), "is not a Kubeflow kind", f"did you mean {likely!r}?")
    other = next(
        (each for each in nodes if _is_of_batch(each) or text(child(each, "kind")) in _NOT_WIRED), None
    )
    kind = child(other or nodes[0], "kind")
    if library := _NOT_WIRED.get(text(kind)):
        hint = f"kubectl apply leaves it to its controller; echelon runs {', '.join(_JOBS)}"
        raise refuse(kind, f"is not run by echelon, which does not wire {library}", hint)
    problem = "cannot be run by echelon" if other is not None else "is not a job"
    raise refuse(kind, problem, f"it runs {', '.join(_JOBS)}")


def _is_of_batch(node: Node) -> bool:
    """Whether a document is a Job or CronJob of Kubernetes' own."""
    return text(child(node, "apiVersion")).startswith("batch/")


def _is_job(node: Node) -> bool:
    """Whether a document is a job; one of another version than echelon reads is refused."""
    kind, version = text(child(node, "kind")), child(node, "apiVersion")
    if kind not in _JOBS:
        return False
    known = [each for each, its_kind in (*KINDS, TRAINJOB) if its_kind == kind]
    if text(version) not in known:
        raise refuse(version, f"is not a version of {kind}", f"it is {' or '.join(known)}")
    return True


def _runtime(job: Node, kind: str, name: str, others: Sequence[Node], outside: Outside) -> Node:
    for each in others:
        about = child(each, "metadata")
        if text(child(each, "kind")) == kind and text(child(about, "name")) == name:
            return each
    found = outside.find_runtime(kind, name)
    if found is not None:
        return Node(value=_written(found), at=At(source=f"{kind} {name}"))
    place = inside(inside(inside(job.at, "spec"), "runtimeRef"), "name")
    raise wrong(
        place,
        name,
        f"is not a {kind} of this file or of the cluster",
        "put its document into the file, after ---",
    )


def _written(value: Any) -> Any:
    """An object of the API server, as if it had been written down."""
    from echelon.jobfile.conversion import Written

    if isinstance(value, Mapping):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_written(each) for each in value]
    if isinstance(value, str):
        return value
    return Written(text=str(value).lower() if isinstance(value, bool) else str(value), value=value)
