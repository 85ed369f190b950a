"""A Job that cannot be is refused with the field, the value and the fix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.model.job import FRAMEWORKS, NAME_LENGTH, Job, Role, Secret, check_name, suggest_name, validate
from echelon.model.pods.pod import PodOptions
from echelon.model.resources import Resources

GOOD = Job(name="fm", script="train.py")
NONE = Resources()


def role(**more: Any) -> Role:
    return Role(name="ps", workers=1, resources=NONE, **more)


@pytest.mark.parametrize(
    "job",
    [
        GOOD,
        replace(GOOD, script=None, module="pkg.train"),
        replace(GOOD, script=None, command=("prog",)),
        replace(
            GOOD,
            roles=(Role(name="chief", workers=1, resources=NONE), Role(name="ps", workers=9, resources=NONE)),
        ),
        replace(GOOD, roles=(role(command=("serve",), args=(), env={"A": ""}, image="x", procs=3),)),
        replace(GOOD, resources=Resources(gpus=1, gpu_type="A100", other={"rdma/hca": 1})),
        replace(GOOD, env={"_A1": ""}, secrets=(Secret(name="TOKEN"),)),
        *(replace(GOOD, framework=name) for name in FRAMEWORKS),
    ],
)
def test_a_good_job(job: Job) -> None:
    validate(job)


@pytest.mark.parametrize(
    ("job", "field", "value", "hint"),
    [
        (replace(GOOD, name="My Run"), "name", "My Run", "for example 'my-run'"),
        (replace(GOOD, script=None), "script", None, "give one of script, module, command"),
        (replace(GOOD, module="m"), "script", "script and module", "give one of"),
        (replace(GOOD, workers=0), "workers", 0, "at least one worker"),
        (replace(GOOD, procs=0), "procs", 0, "one per GPU"),
        (replace(GOOD, workers=10**22), "workers", 10**22, "a smaller number"),
        (replace(GOOD, procs=1_001, resources=Resources(gpus=1)), "procs", 1_001, "a smaller number"),
        (
            replace(GOOD, roles=(Role(name="ps", workers=10_001, resources=NONE),)),
            "role ps",
            10_001,
            "a smaller number",
        ),
        (replace(GOOD, restarts=-1), "restarts", -1, "do not restart"),
        (replace(GOOD, priority=1001), "priority", 1001, "from -1000 to 1000"),
        (replace(GOOD, framework="caffe"), "framework", "caffe", "auto, torch, torchrun, tensorflow"),
        (replace(GOOD, resources=Resources(gpus=-1)), "gpus", -1, "no GPU"),
        (replace(GOOD, resources=Resources(gpu_type="A100")), "gpu_type", "A100", "add --gpus N"),
        (replace(GOOD, resources=Resources(other={"x": 0})), "resource x", 0, "leave it out"),
        (replace(GOOD, roles=(Role(name="pss", workers=1, resources=NONE),)), "role", "pss", "--role ps=1"),
        (
            replace(GOOD, roles=(Role(name="ps", workers=0, resources=NONE),)),
            "role ps",
            0,
            "leave the role out",
        ),
        (
            replace(GOOD, roles=(Role(name="chief", workers=2, resources=NONE),)),
            "role chief",
            2,
            "exactly one",
        ),
        (
            replace(GOOD, roles=(Role(name="ps", workers=1, resources=Resources(gpus=-1)),)),
            "role ps: gpus",
            -1,
            "no GPU",
        ),
        (replace(GOOD, roles=(Role(name="launcher", workers=2, resources=NONE),)), "role launcher", 2, "one"),
        (replace(GOOD, roles=(role(procs=0),)), "role ps: procs", 0, "at least one process"),
        (replace(GOOD, roles=(role(env={"1A": ""}),)), "role ps: env", "1A", "letters, digits"),
        (replace(GOOD, roles=(role(env={"A": "\0"}),)), "role ps: env", "\0", "no program"),
        (replace(GOOD, roles=(role(command=("a\0",)),)), "role ps: command", "a\0", "no program"),
        (replace(GOOD, roles=(role(args=("a\0",)),)), "role ps: args", "a\0", "no program"),
        (replace(GOOD, roles=(role(template={"kind": 1}),)), "role ps: template", "kind", "metadata"),
        (replace(GOOD, pod=PodOptions(template={"kind": 1})), "template", "kind", "metadata"),
        (replace(GOOD, env={"1A": "x"}), "env", "1A", "--env KEY=VALUE"),
        (replace(GOOD, secrets=(Secret(name="A B"),)), "env", "A B", "letters, digits"),
        (replace(GOOD, args=("a\0",)), "args", "a\0", "no program"),
        (replace(GOOD, env={"A": "\0"}), "env", "\0", "no program"),
        (replace(GOOD, python="py\0"), "python", "py\0", "no program"),
        (replace(GOOD, results="r\0"), "results", "r\0", "no program"),
    ],
)
def test_a_bad_job(job: Job, field: str, value: object, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        validate(job)
    assert (caught.value.field, caught.value.value) == (field, value)
    assert hint in caught.value.hint


@settings(deadline=None)
@given(st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True))
def test_a_name_that_can_be_is_suggested_as_it_is(name: str) -> None:
    check_name(name)
    assert suggest_name(name).replace("-", "") == name.replace("-", "")


@settings(deadline=None)
@given(st.text())
def test_what_is_suggested_can_be_a_name(text: str) -> None:
    check_name(suggest_name(text))


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "1a", "A", "a_b", "a.b", "a" * (NAME_LENGTH + 1), "a\n", "ä"]
)
def test_no_name(name: str) -> None:
    with pytest.raises(InvalidJob, match="is not a run's name"):
        check_name(name)
