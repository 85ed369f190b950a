"""What the settings mean as a Job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.examples import EXAMPLES, settings_of

from echelon.errors import InvalidJob
from echelon.model.job import Job, Role, Secret
from echelon.model.meaning import JOB_FIELDS, lines_of, to_job
from echelon.model.pods.pod import Keeper, PodOptions
from echelon.model.resources import Amount, Resources
from echelon.model.settings import RoleSettings, Settings


def test_a_role_is_a_whole_worker_description() -> None:
    said = Settings(
        script="train.py",
        gpus=2,
        memory="1Gi",
        roles={
            "launcher": 1,
            "ps": RoleSettings(
                workers=2,
                procs=3,
                command="serve --name 'a b'",
                args=("--port", 7000),
                env={"N": 1},
                image="my/server:2",
                template={"spec": {"hostNetwork": True}},
            ),
        },
    )
    launcher, ps = to_job(said, name="x").roles
    assert launcher == Role(
        name="launcher", workers=1, resources=Resources(memory=Amount(request=2.0**30))
    ), "it computes nothing, so it needs no GPU"
    assert ps == Role(
        name="ps",
        workers=2,
        procs=3,
        resources=Resources(memory=Amount(request=2.0**30)),
        command=("serve", "--name", "a b"),
        args=("--port", "7000"),
        env={"N": "1"},
        image="my/server:2",
        template={"spec": {"hostNetwork": True}},
    )
    with pytest.raises(InvalidJob, match="image"):
        to_job(Settings(script="a.py", roles={"ps": RoleSettings(image="Not An Image")}), name="x")


def test_the_least_that_can_be_said() -> None:
    assert to_job(Settings(script="train.py"), name="train") == Job(name="train", script="train.py")


def test_everything_said() -> None:
    said = Settings(
        name="fm",
        command="prog --x 'a b'",
        args=("--lr", 1e-3, 2),
        workers=2,
        gpus=4,
        gpu_type="A100",
        cpus="2:4",
        memory="1Gi",
        resource={"rdma/hca": 1},
        roles={"chief": 1, "ps": 2, "evaluator": RoleSettings(gpus=0, memory="2Gi", cpus=1)},
        framework="tensorflow",
        env={"A": 1},
        secret=("T", "U=@file"),
        restarts=3,
        priority=2,
        timeout="1h",
        results="out",
        reuse_results=True,
        include=("data",),
    )
    worker = Resources(
        gpus=4,
        gpu_type="A100",
        cpus=Amount(request=2, limit=4),
        memory=Amount(request=2**30),
        other={"rdma/hca": 1},
    )
    bare = Resources(cpus=worker.cpus, memory=worker.memory)
    assert to_job(said, name="x") == Job(
        name="fm",
        command=("prog", "--x", "a b"),
        args=("--lr", "0.001", "2"),
        workers=2,
        procs=4,
        resources=worker,
        roles=(
            Role(name="chief", workers=1, resources=worker),
            Role(name="ps", workers=2, resources=bare),
            Role(
                name="evaluator",
                workers=1,
                resources=Resources(cpus=Amount(request=1), memory=Amount(request=2**31)),
            ),
        ),
        framework="tensorflow",
        env={"A": "1"},
        secrets=(Secret(name="T"), Secret(name="U", file="file")),
        restarts=3,
        priority=2,
        timeout=3600,
        results="out",
        resume=True,
        include=("data",),
        pod=PodOptions(keeper=Keeper()),
    )


def test_one_process_per_gpu_unless_said_otherwise() -> None:
    assert to_job(Settings(script="a", gpus=4), name="x").procs == 4
    assert to_job(Settings(script="a", gpus=4, procs=1), name="x").procs == 1
    assert to_job(Settings(script="a"), name="x").procs == 1


@pytest.mark.parametrize(
    ("said", "field", "hint"),
    [
        (Settings(), "script", "give one of script, module, command"),
        (Settings(script="a", workers=0), "workers", "at least one"),
        (Settings(script="a", workers="two"), "workers", "the fewest and the most workers, 2..8"),
        (Settings(script="a", workers=True), "workers", "the fewest and the most workers, 2..8"),
        (Settings(script="a", memory="lots"), "memory", "16Gi"),
        (Settings(script="a", roles={"ps": RoleSettings(cpus="x")}), "role ps: cpus", "cores"),
        (Settings(script="a", roles={"ps": RoleSettings(gpus="x")}), "role ps: gpus", "for example"),  # type: ignore[arg-type]
        (Settings(script="a", roles={"ps": 0}), "role ps", "leave the role out"),
        (Settings(script="a", resource={"x": 1.5}), "resource x", "for example"),  # type: ignore[dict-item]
        (Settings(script="a", timeout="soon"), "timeout", "30s, 5m"),
        (Settings(command="a 'b"), "command", "give a list of words"),
    ],
)
def test_settings_that_make_no_job(said: Settings, field: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        to_job(said, name="x")
    assert caught.value.field == field
    assert hint in caught.value.hint


def test_a_secret_in_the_open_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidJob, match="export T and say --secret T") as caught:
        to_job(Settings(script="a", secret=("T=hunter2",)), name="x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("keep", "soon"), ("keep", -1), ("keep_size", "much")])
def test_a_keepers_time_and_size_are_checked(name: str, value: object) -> None:
    with pytest.raises(InvalidJob, match=name):
        to_job(Settings(script="a", **{name: value}), name="x")  # type: ignore[arg-type]


SHOWN_ELSEWHERE = {
    "script", "module", "command", "args",  # the command
    "workers", "procs", "gpus", "cpus", "memory", "resource", "image",  # the groups of workers
    "framework", "env", "results", "output", "checkpoints", "code", "code_volume", "snapshot",
    "no_wait", "template",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::echelon.model.former.FormerName")
def test_a_dry_run_has_a_line_of_everything_that_is_set() -> None:
    assert list(lines_of(to_job(Settings(script="a.py"), name="x"), in_pods=True)) == []
    for each in JOB_FIELDS:
        if each.setting == "python":
            continue
        job = to_job(settings_of(EXAMPLES[each.setting][0]), name="x")
        titles = [title for title, text in lines_of(job, in_pods=True) if text]
        assert (each.title in titles) == (each.setting not in SHOWN_ELSEWHERE), each.setting
        here = [title for title, _ in lines_of(job, in_pods=False)]
        assert (each.title in here) == (each.setting not in SHOWN_ELSEWHERE and not each.in_pods)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"restarts": 3}, ("restarts", "up to 3")),
        ({"timeout": "5m"}, ("time limit", "300 s")),
        ({"shm": "1Gi"}, ("shm", "1 GiB")),
        ({"secret": ["TOKEN", "KEY=@key.txt"]}, ("secrets", "TOKEN, KEY")),
        ({"mount": ["pvc:a:/a:ro", "emptydir::/b"]}, ("volume", "pvc:a at /a, read only; emptydir: at /b")),
        ({"node_selector": {"a": 1, "b": "c"}}, ("node labels", "a=1, b=c")),
        ({"scale_up": True}, ("scale up", "yes")),
    ],
)
def test_a_line_is_for_a_person(said: dict[str, Any], line: tuple[str, str]) -> None:
    assert list(lines_of(to_job(settings_of(said), name="x"), in_pods=True)) == [line]
