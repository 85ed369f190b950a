"""Lists of runs in which some are made of others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.children import (
    folded,
    gathered,
    listed,
    names_of_parents,
    nested,
    parents_of,
    steps_below,
    steps_in,
)
from echelon.engines.local.engine import LocalEngine
from echelon.model.program import Step
from echelon.model.state import State
from echelon.model.status import RunSummary
from tests.parents import IN_CLUSTER, NOTEBOOK, Cluster, end, parent, put_there, step_run


def row(name: str, state: State = "succeeded", at: float = 0.0, **more: Any) -> RunSummary:
    ended = None if state == "running" else at + 1
    return RunSummary(name=name, uri=f"local://{name}", state=state, created=at, ended=ended, **more)


def step(name: str, state: State = "succeeded", at: float = 0.0, **more: Any) -> RunSummary:
    return row(name, state, at, parent="nb-1", **more)


PARENT = row("nb-1", "running", 1.0, steps=3, steps_place="", command="notebook nb.ipynb")


@pytest.mark.core
def test_a_parent_stands_for_its_steps_with_what_they_hold() -> None:
    rows = [
        row("b-2", at=9.0),
        step("nb-1-train", "running", 5.0, workers=2, gpus=4),
        step("nb-1-load", at=2.0, gpus=1),
        PARENT,
        row("alone"),
    ]
    found = folded(rows)
    assert [each.name for each in found] == ["b-2", "nb-1", "alone"]
    assert found[1] == replace(PARENT, workers=2, gpus=4)
    assert [each.name for each in steps_below(rows)] == ["b-2", "nb-1", "nb-1-load", "nb-1-train", "alone"]
    (over,) = folded([replace(PARENT, state="lost"), *(replace(each, state="failed") for each in rows[1:3])])
    assert (over.state, over.workers, over.gpus) == ("lost", 2, 5)


def test_steps_of_another_machine_stand_in_one_row() -> None:
    rows = [
        step("nb-1-train", "failed", 5.0, reason="bad luck"),
        row("c"),
        step("nb-1-load", "succeeded", 2.0),
    ]
    one, other = folded(rows)
    assert (one.name, one.state, one.reason, one.created, one.ended) == (
        "nb-1",
        "failed",
        "bad luck",
        2.0,
        6.0,
    )
    assert (one.command, one.steps, one.steps_done) == ("2 steps, started by another machine", 2, 1)
    assert other.name == "c"
    assert steps_below(rows) == rows
    [(_, below), (_, none)] = nested(rows)
    assert ([each.name for each in below], none) == (["nb-1-load", "nb-1-train"], [])
    status = gathered(one, below)
    assert (status.name, status.state, status.reason) == ("nb-1", "failed", "bad luck")
    assert status.uri == ""  # no verb takes it
    assert [(each.name, each.state, each.run) for each in status.steps] == [
        ("load", "succeeded", "local://nb-1-load"),
        ("train", "failed", "local://nb-1-train"),
    ]


def test_a_parent_that_cannot_be_read_keeps_its_steps() -> None:
    rows = [row("nb-1", "damaged"), step("nb-1-load"), row("alone", "damaged")]
    found = [(each.name, [step.name for step in below]) for each, below in nested(rows)]
    assert found == [("nb-1", ["nb-1-load"]), ("alone", [])]
    assert [each.name for each in steps_below(rows)] == ["nb-1", "nb-1-load", "alone"]


def test_those_of_two_users_that_have_one_name_are_two_rows() -> None:
    hers = step("nb-1-a", "failed", 2.0, owner="ann", own=False)
    assert [each.state for each in folded([hers, step("nb-1-b", "running"), PARENT])] == ["failed", "running"]


def test_a_cluster_has_the_parents_whose_steps_are_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    put_there(monkeypatch, cluster)
    step_run("load", engine=cluster)
    for run in (parent(program=IN_CLUSTER), parent(name="here-1")):
        end(run)
    assert sorted(each.name for each in listed(cluster)) == ["t-1", "t-1-load"]  # each has its own clock
    assert [each.name for each in listed(LocalEngine())] == ["here-1", "t-1"]
    assert names_of_parents(cluster) == ["t-1"]


@pytest.mark.parametrize("where", [("c", "other"), ("other", "team")])
def test_no_other_namespace_or_cluster_has_them(
    home: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[str, str]
) -> None:
    put_there(monkeypatch, Cluster())
    end(parent(program=IN_CLUSTER))
    assert listed(Cluster(*where)) == []
    assert names_of_parents(Cluster(*where)) == []


def test_the_parents_of_a_file_and_their_steps(home: Path) -> None:
    run = parent(Step(name="load"), Step(name="train", after=("load",)))
    end(run)
    end(parent(name="u-1", program=replace(NOTEBOOK, source="/home/ann/other.ipynb")))
    end(parent(name="t-2"))
    assert [record.ref.name for record in parents_of(NOTEBOOK.source)] == ["t-1", "t-2"]
    assert steps_in("t-1") == ["load", "train"]
    assert steps_in("t-3") == steps_in("../t-1") == steps_in("") == []
