"""What tests of several dialects judge by: the real definitions, and a job's conditions."""

from __future__ import annotations

import shutil
from functools import cache
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from testbed.fixtures import give_up

from echelon.engines.kubernetes.render import dialects
from testbed import programs

Object = dict[str, Any]


@cache
def definition(program: str, path: str) -> Draft202012Validator:
    """What judges the spec of a kind, from the module of the controller that defines it. Its schema is large,
    and is not judged itself.
    """
    if not programs.is_built(program) and shutil.which("go") is None:
        give_up(f"{program} is built with Go, and Go is not installed")
    (version,) = yaml.safe_load((programs.folder(program) / path).read_text())["spec"]["versions"]
    return Draft202012Validator(strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def strict(schema: Object) -> Object:
    """A schema that refuses what an API server would prune."""
    found = {
        key: strict(value) if isinstance(value, dict) else value
        for key, value in schema.items()
        if key != "properties"
    }
    if "properties" in schema:
        found["properties"] = {key: strict(value) for key, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in schema:
            found["additionalProperties"] = False
    return found


def condition(kind: str, status: str = "True") -> dict[str, str]:
    """A condition of a job."""
    return {"type": kind, "status": status, "lastTransitionTime": "2026-11-16T10:00:00Z", "reason": "X"}


def check_ending(kind: str, job: Object) -> None:
    """A kind without a deadline is suspended for good; where another suspended it, it waits."""
    dialect = dialects.named(kind)
    for change in (dialect.ended(), dialect.withdrawn()):
        assert change["spec"] == dialect.suspended(suspend=True)["spec"]
        marked = {**job, "metadata": {**job["metadata"], **change["metadata"]}, "spec": change["spec"]}
        assert not dialect.is_suspended(marked)
        assert (
            dialect.end_of([marked]) is None
        )  # its pods are there as long as the controller has not said so
        marked["status"] = {"conditions": [condition("Suspended")]}
        end = dialect.end_of([marked])
        assert end is not None
        assert (end.outcome, end.final) == ("failed", False)
    waits = {**job, **dialect.suspended(suspend=True), "status": {"conditions": [condition("Suspended")]}}
    assert dialect.is_suspended(waits)
    assert dialect.end_of([waits]) is None
