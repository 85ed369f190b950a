"""What a launch template becomes: how often its command starts, and the files it brings."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.launching.roll import Roll
from echelon.agent.task import SCHEMA, Task

ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def task(*groups: dict[str, Any], **details: Any) -> Task:
    """A run; `details` are those of every group's launch."""
    paths = dict.fromkeys(("cwd", "logs", "secret"), "/nowhere")
    described = [
        {"role": "worker", "launch": {"argv": ["program"], **details}, **group}
        for group in groups or ({"workers": 3, "procs": 2},)
    ]
    return Task(
        {
            "schema": SCHEMA,
            "run": "the-run",
            "groups": described,
            "output": "/results",
            "reports": "/state",
            "leader": {"host": "", "port": 0},
            **paths,
        }
    )


def roll(made: Task) -> Roll:
    return Roll(made, ADDRESSES, [[100, 101], [200], [300]])


@pytest.mark.parametrize(
    ("per", "starts"), [("rank", [2, 2, 2]), ("worker", [1, 1, 1]), ("leader", [1, 0, 0])]
)
def test_how_often_the_command_starts(per: str, starts: list[int]) -> None:
    made = task(per=per)
    assert [launch.starts(made, place) for place in made.places] == starts


@pytest.mark.parametrize("per", ["rank", "worker"])
def test_a_worker_without_ranks_starts_nothing(per: str) -> None:
    made = task({"workers": 1, "procs": 0}, {"workers": 2, "procs": 1}, per=per, ports="first")
    assert [launch.starts(made, place) for place in made.places] == [0, 1, 1]
    assert [launch.ports_needed(made, place) for place in made.places] == [0, 1, 0]


def test_a_hostfile_names_every_worker_that_has_ranks() -> None:
    made = task(
        {"role": "launcher", "workers": 1, "procs": 0}, {"workers": 2, "procs": 4}, files={"hosts": "{hosts}"}
    )
    assert launch.file_texts(made, made.places[0], roll(made)) == {
        "/state/files/worker-0/hosts": "10.0.0.2 slots=4\n10.0.0.3 slots=4\n"
    }


def test_the_placeholders_of_files() -> None:
    groups = {"workers": 2, "procs": 1}, {"role": "ps", "workers": 1, "procs": 2}
    text = "{worker} {address:1} {port:2} {hosts:ps}{members:ps} {file:b} {run} {output} {rank} {other}"
    made = task(*groups, files={"a.txt": text, "b": ""})
    assert launch.file_texts(made, made.places[2], roll(made)) == {
        "/state/files/worker-2/a.txt": '2 10.0.0.2 300 10.0.0.3 slots=2\n["10.0.0.3:300"] '
        "/state/files/worker-2/b the-run /results {rank} {other}",
        "/state/files/worker-2/b": "",
    }


def test_files_are_named_in_argv_and_wiring_and_only_those_there_are() -> None:
    made = task(files={"hosts": ""}, wiring={"HOSTS": "{file:hosts} {file:none}"})
    paths = launch.file_paths(made, made.places[1])
    assert launch.fill_argv(["--hostfile={file:hosts}", "{file:none}", "{output}"], made, paths) == [
        "--hostfile=/state/files/worker-1/hosts", "{file:none}", "/results",
    ]  # fmt: skip
    env = launch.environment({}, made, made.places[1], 0, 0, roll(made), "/error", set())
    assert env["HOSTS"] == "/state/files/worker-1/hosts {file:none}"


def test_the_variables_of_a_group_are_stronger_than_those_of_the_run() -> None:
    made = task(env={"A": "group {run}", "B": "{rank}"}, wiring={"A": "framework"})
    made.env = {"A": "run", "C": "run"}
    env = launch.environment({}, made, made.places[0], 0, 0, roll(made), "/error", set())
    assert (env["A"], env["B"], env["C"]) == ("group the-run", "{rank}", "run")


@pytest.mark.parametrize(("grace", "told"), [(10.0, None), (90.5, "91")])
def test_torchrun_gives_its_ranks_a_longer_grace_too(grace: float, told: str | None) -> None:
    made = task()
    made.grace = grace
    env = launch.environment({}, made, made.places[0], 0, 0, roll(made), "/error", set())
    assert env.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") == told
