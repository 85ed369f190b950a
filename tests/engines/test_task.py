"""What all agents of a run are told, whichever engine tells them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.model.examples import EXAMPLES

from echelon.agent.task import Task
from echelon.engines.task import make_task
from echelon.jobfile import settings_from
from echelon.model.job import Job
from echelon.model.meaning import JOB_FIELDS, to_job
from echelon.model.plan import Launch, Placement, Plan, Seat
from echelon.model.run import Record, RunRef
from echelon.model.settings import Settings, merge
from echelon.model.world import Group, World

PLAN = Plan(
    world=World(groups=(Group(workers=2, procs=3), Group(role="ps", workers=1, procs=1, essential=False))),
    launches=(
        Launch(
            argv=("python3", "{code}/a.py", "{output}"), wiring={"RANK": "{rank}"}, ports="all", until="first"
        ),
        Launch(argv=("ps",), if_importable={"tf_keras": {"A": "1"}}),
    ),
    placement=Placement(seats=tuple(Seat(worker=number, node="n") for number in range(3))),
    threads=(2, 0),
)
RECORD = Record(
    ref=RunRef(engine="local", name="fm"),
    job=Job(name="fm", script="a.py", cwd="{code}/sub", env={"LR": "1"}, restarts=4, timeout=60.0),
    created=0.0,
    owner="me",
    results="/results",
)


def task(**more: Any) -> dict[str, Any]:
    places: dict[str, Any] = {
        "code": "/code", "output": "/out", "logs": "/out/logs", "reports": "/state", "secret": "/gang",
        "leader": ("host", 7), "bundle": None, "join_timeout": 9.0, "project": False,
    }  # fmt: skip
    return make_task(RECORD, PLAN, **(places | more))


def test_the_agent_reads_what_was_planned() -> None:
    read = Task(json.loads(json.dumps(task())))
    assert [(each.role, each.first_rank, each.procs) for each in read.places] == [
        ("worker", 0, 3),
        ("worker", 3, 3),
        ("ps", 6, 1),
    ]
    assert (read.run, read.restarts, read.timeout, read.join_timeout) == ("fm", 4, 60.0, 9.0)
    assert (read.leader, read.output, read.logs, read.reports) == (("host", 7), "/out", "/out/logs", "/state")
    assert read.groups[0]["launch"]["wiring"] == {"RANK": "{rank}"}
    assert read.groups[1]["launch"]["if_importable"] == {"tf_keras": {"A": "1"}}
    assert [group["launch"]["threads"] for group in read.groups] == [2, 0]
    assert [group["launch"]["until"] for group in read.groups] == ["first", "all"]
    assert not read.groups[1]["essential"]


def test_the_agent_reads_every_setting_that_it_acts_on() -> None:
    acted_on = {each.at: each for each in JOB_FIELDS if each.agent}
    examples = [EXAMPLES[each.setting][0] for each in acted_on.values()]
    settings = Settings(script="a.py")
    for each in examples:
        settings = merge(settings_from(each, source="a test"), settings)
    job, usual = to_job(settings, name="fm"), Job(name="fm")
    made = make_task(
        replace(RECORD, job=job), PLAN, code="/code", output="", logs="", reports="", secret="",
        leader=("", 0), bundle=None, join_timeout=1.0, project=False,
    )  # fmt: skip
    for name in acted_on:
        assert getattr(Task(made), name) == made[name] == getattr(job, name) != getattr(usual, name)


def test_the_folder_of_the_code_is_filled_in_and_nothing_else() -> None:
    made = task()
    assert made["groups"][0]["launch"]["argv"] == ["python3", "/code/a.py", "{output}"]
    assert made["cwd"] == "/code/sub"
    assert make_task(
        replace(RECORD, job=replace(RECORD.job, cwd="/else")), PLAN, code="/code", output="", logs="",
        reports="", secret="", leader=("", 0), bundle=None, join_timeout=1.0, project=False,
    )["cwd"] == "/else"  # fmt: skip


def test_functions_find_their_project_only_where_it_was_shipped() -> None:
    assert task()["env"] == {"LR": "1"}
    assert task(project=True)["env"] == {"LR": "1", "ECHELON_PROJECT": "/code"}


def test_words_of_one_engine_go_through() -> None:
    made = task(hold=5.0, gpus=[["0"]], bundle={"path": "/b", "digest": "d", "target": "/code"})
    assert (made["hold"], made["gpus"], made["bundle"]["path"]) == (5.0, [["0"]], "/b")
