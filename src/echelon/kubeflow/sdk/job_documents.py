"""What callers of Kubeflow's client ask for, as the document that the client itself would send. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from echelon.errors import InvalidJob
from echelon.kubeflow.labels import SPECS
from echelon.kubeflow.sdk.describe import CONTAINERS
from echelon.kubeflow.sdk.shape import as_document
from echelon.model.pods.pod import KUBEFLOW_KIND
from echelon.model.settings import Settings

RUNS_FUNCTION = ("python3", "-c", "pass")
"""Stands in a document for the function that its workers run."""

DEFAULT_INDEX = "https://pypi.org/simple"
_RESOURCES = {"gpu": "nvidia.com/gpu"}


def job_document(
    kind: str,
    name: str,
    counts: Mapping[str, int],
    *,
    image: str | None,
    runs_function: bool,
    procs: int | str | None = None,
    resources: Any = None,
    env: Any = None,
    volumes: Any = None,
    mounts: Any = None,
) -> dict[str, Any]:
    """A job of that kind, with so many replicas of each type, all alike."""
    volumes, mounts = as_document(volumes or []), as_document(mounts or [])
    if len(volumes) != len(mounts):
        raise InvalidJob(
            "volume_mounts", len(mounts), f"is not as many as there are volumes ({len(volumes)})"
        )
    container = {
        "name": CONTAINERS[kind],
        "image": image or "unnamed",
        "command": list(RUNS_FUNCTION) if runs_function else None,
        "resources": _resources(resources),
        "env": _env(env),
        "volumeMounts": mounts or None,
    }
    template = {"spec": as_document({"containers": [as_document(container)], "volumes": volumes or None})}
    specs = {
        each: {"replicas": count, "restartPolicy": "Never", "template": template}
        for each, count in counts.items()
        if count
    }
    spec = {SPECS[kind]: specs, "nprocPerNode": None if procs is None else str(procs)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": as_document(spec),
    }


def installing(image: str | None, packages: Sequence[str] | None, indexes: Sequence[str]) -> Settings:
    """The settings for an image, and for packages that are installed in it before the start: from the first
    of the indexes and those beside it, where they are not Kubeflow's default.
    """
    first, *more = indexes or (DEFAULT_INDEX,)
    env = {} if first == DEFAULT_INDEX else {"PIP_INDEX_URL": first}
    if more:
        env["PIP_EXTRA_INDEX_URL"] = " ".join(more)
    return Settings(image=image, pip=tuple(packages or ()) or None, env=env or None)


def check_kind(kind: str) -> None:
    """Refuse a kind of job that echelon does not run."""
    if kind not in SPECS:
        raise InvalidJob("job_kind", kind, "is not known", hint=f"one of {', '.join(SPECS)}")


def check_conditions(name: str, expected: Collection[str], known: Collection[str]) -> None:
    """Refuse to wait for what can never be."""
    for each in expected:
        if each not in known:
            raise InvalidJob(name, each, "is not known", hint=f"one of {', '.join(known)}")


def with_metadata(
    document: Mapping[str, Any],
    kind: str,
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The same job with more labels and annotations; one of these says what kind of job it was."""
    about = dict(document.get("metadata") or {})
    about["labels"] = {**(about.get("labels") or {}), **(labels or {})}
    about["annotations"] = {**(about.get("annotations") or {}), **(annotations or {}), KUBEFLOW_KIND: kind}
    return {**document, "metadata": about}


def _resources(given: Any) -> dict[str, Any] | None:
    """Kubeflow's client takes `{"cpu": 1, "memory": "2Gi", "gpu": 1}`, or Kubernetes' own words."""
    if given is None:
        return None
    found = as_document(given)
    if not isinstance(found, Mapping):
        raise InvalidJob(
            "resources_per_worker", given, "is not a dict", hint='{"cpu": 1, "memory": "2Gi", "gpu": 1}'
        )
    if {"limits", "requests"} & set(found):
        return dict(found)
    named = {_RESOURCES.get(key.lower(), key.lower()): str(value) for key, value in found.items()}
    return {"limits": named, "requests": named}


def _env(given: Any) -> list[Any] | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        return [{"name": str(name), "value": str(value)} for name, value in given.items()]
    found: Sequence[Any] = as_document(list(given))
    return list(found)
