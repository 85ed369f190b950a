"""What differs in what runs were asked to do."""

from __future__ import annotations

from dataclasses import replace

from echelon.comparison.facts import HIDDEN, Difference, differences, facts_of
from echelon.model.job import Job, Role, Secret
from echelon.model.pods.pod import Mount, PodOptions
from echelon.model.resources import Amount, Resources

JOB = Job(name="a", script="train.py", args=("data", "layers=2", "--lr", "0.1", "--fast"))


def told(one: Job, other: Job) -> list[tuple[str, str, tuple[str | None, ...]]]:
    return [
        (each.about, each.name, each.values)
        for each in differences([facts_of(one, None), facts_of(other, None)])
    ]


def test_the_same_job_under_another_name_does_not_differ() -> None:
    assert told(JOB, replace(JOB, name="b", results="elsewhere", cwd="/tmp")) == []


def test_each_thing_by_its_name() -> None:
    other = replace(
        JOB,
        script="other.py",
        args=("more", "layers=2", "--lr", "0.2"),
        env={"OMP_NUM_THREADS": "2"},
        secrets=(Secret(name="WANDB_API_KEY"),),
        workers=2,
        resources=Resources(gpus=4, memory=Amount(request=2**30)),
        roles=(Role(name="ps", workers=1, resources=Resources()),),
        restarts=2,
        pod=PodOptions(
            image="my/torch:2", pip=("einops",), mounts=(Mount(kind="pvc", source="d", path="/d"),)
        ),
    )
    assert told(JOB, other) == [
        ("program", "", ("train.py", "other.py")),
        ("argument", "", ("data", "more")),
        ("argument", "lr", ("0.1", "0.2")),
        ("argument", "fast", ("true", None)),
        ("environment", "OMP_NUM_THREADS", (None, "2")),
        ("secret", "WANDB_API_KEY", (None, "given")),
        ("image", "", (None, "my/torch:2")),
        ("packages", "pip", (None, "einops")),
        ("size", "workers", ("1", "2")),
        ("size", "gpus", ("0", "4")),
        ("size", "memory", (None, "1 GiB")),
        ("size", "ps workers", (None, "1")),
        ("size", "ps processes", (None, "1")),
        ("size", "ps gpus", (None, "0")),
        ("setting", "restarts", ("0", "2")),
        ("setting", "pod.mounts.0.kind", (None, "pvc")),
        ("setting", "pod.mounts.0.source", (None, "d")),
        ("setting", "pod.mounts.0.path", (None, "/d")),
        ("setting", "pod.mounts.0.read_only", (None, "false")),
    ]


def test_a_secret_is_told_to_differ_and_never_shown() -> None:
    def with_secret(value: str) -> Job:
        container = {"name": "main", "env": [{"name": "DB_PASSWORD", "value": value}]}
        return replace(
            JOB,
            args=("--api-key", value),
            env={"MY_TOKEN": value},
            pod=PodOptions(template={"spec": {"containers": [container]}}),
        )

    found = told(with_secret("abc"), with_secret("abd"))
    assert [(about, name) for about, name, _ in found] == [
        ("argument", "api-key"),
        ("environment", "MY_TOKEN"),
        ("setting", "pod.template.spec.containers.main.env.DB_PASSWORD.value"),
    ]
    assert {values for _, _, values in found} == {(HIDDEN, HIDDEN)}


def test_a_trials_parameter_is_told_once() -> None:
    def trial(number: str, lr: str) -> Job:
        return replace(
            JOB, args=("--lr", lr), env={"ECHELON_PARAM_LR": lr, "ECHELON_STEP": number, "ECHELON_PARAMS": lr}
        )

    assert told(trial("1", "0.1"), trial("2", "0.2")) == [("parameter", "lr", ("0.1", "0.2"))]
    both = differences([facts_of(trial("1", "0.1"), None), facts_of(JOB, None)])
    assert Difference(about="parameter", name="lr", values=("0.1", None)) in both
