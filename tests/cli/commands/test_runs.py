"""The commands on runs, given one that is made of runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.parents import IN_CLUSTER, NOTEBOOK, Cluster, end, kill, parent, put_there, step_run, tell

from echelon.agent.gang.verdict import LOST_EXIT_CODE, STOPPED_EXIT_CODE
from echelon.errors import StateTrouble, UnknownRun
from echelon.model.program import Step

Call = Callable[..., subprocess.CompletedProcess[str]]


def listed(call: Call, *words: str) -> list[list[str]]:
    """The rows of `ps`."""
    return [line.split() for line in call("ps", *words).stdout.splitlines()[1:]]


def states(call: Call, name: str) -> set[str]:
    """How a run stands, by all that tell it."""
    rows = [row[1] for row in listed(call, "-a") if row[0] == name]
    told = [json.loads(call(verb, name, "-o", "json").stdout)["state"] for verb in ("status", "wait")]
    listed_as = json.loads(call("ps", name, "-o", "json").stdout)
    return {*rows, *told, *(row["state"] for row in listed_as if row["name"] == name)}


@pytest.mark.core
def test_one_row_and_its_steps_below(call: Call, home: Path) -> None:
    load, train = step_run("load"), step_run("train", "sleep", "600")
    run = parent(
        Step(name="load", state="succeeded", run=str(load), started=1.0, ended=3.0),
        Step(name="train", state="running", run=str(train)),
        Step(name="use", after=("train",)),
    )
    shown = call("ps").stdout
    assert "notebook train.ipynb, 1 of 3 steps" in shown
    assert [row[:2] for row in listed(call)] == [["t-1", "running"]]
    assert [row[0] for row in listed(call, "--steps")] == ["t-1", "t-1-train"]
    assert [row[0] for row in listed(call, "-a", "--steps")] == ["t-1", "t-1-load", "t-1-train"]
    for name in ("t-1", "t-1/train", "t-1-train"):
        assert [row[0] for row in listed(call, name)] == ["t-1"]
    assert {row["name"]: row["parent"] for row in json.loads(call("ps", "-a", "-o", "json").stdout)} == {
        "t-1": None,
        "t-1-load": "t-1",
        "t-1-train": "t-1",
    }
    assert set(call("ps", "-q").stdout.split()) == {"t-1", "t-1-train"}

    tell(run, Step(name="train", state="queued", run=str(train), reason="no GPU is free"))
    first, command, started, elapsed, results, _, heads, *rows = call("status", "t-1").stdout.splitlines()
    assert [line.split()[0] for line in (started, elapsed)] == ["started", "elapsed"]
    assert (command.split()[1:], results.split()) == (["notebook", "train.ipynb"], ["results", "runs/t-1"])
    assert first == "t-1  running  step train: no GPU is free"
    assert heads.split() == ["STEP", "STATE", "TOOK", "RUN", "REASON"]
    assert rows[0].split() == ["load", "succeeded", "2.0", "s", "t-1-load"]
    assert rows[1].split()[:2] == ["train", "queued"]
    assert rows[2].split() == ["use", "waiting", "-", "-"]
    assert call("status", "t-1/load").stdout.startswith("t-1-load  succeeded")
    assert call("top", "t-1").stdout.startswith("t-1-train: ")
    other = step_run("load", "sleep", "600", name="t-1-other")
    tell(run, Step(name="other", state="running", run=str(other)))
    assert "name one: t-1/train, t-1/other" in call("top", "t-1").stderr
    other.stop(now=True)
    waits = call("logs", "t-1/use")
    assert waits.returncode == UnknownRun.exit_code
    assert "step use of t-1 is waiting: it has no run yet" in waits.stderr
    train.stop(now=True)
    end(run)
    assert states(call, "t-1") == {"succeeded"}


def test_a_stop_of_several_and_their_removal(call: Call, home: Path) -> None:
    train = step_run("train", "sleep", "600")
    parent(Step(name="train", state="running", run=str(train)), Step(name="use"))
    parent(Step(name="only"), name="u-1")
    held = call("rm", "t-1")
    assert (held.returncode, "has not ended" in held.stderr) == (StateTrouble.exit_code, True)
    stopped = call("stop", "t-1", "t-1/train", "u-1", "nobody")
    assert stopped.returncode == UnknownRun.exit_code
    assert {"t-1 stopped", "u-1 stopped", "t-1-train stopped"} <= {
        line.partition(":")[0] for line in stopped.stdout.splitlines()
    }
    assert states(call, "t-1") == {"stopped"}
    assert call("wait", "t-1").returncode == STOPPED_EXIT_CODE
    steps = json.loads(call("status", "t-1", "-o", "json").stdout)["steps"]
    assert [(step["name"], step["state"]) for step in steps] == [("train", "stopped"), ("use", "not-reached")]
    removed = call("rm", "u-1", "t-1", "t-1-train", "-o", "json")
    assert (removed.returncode, json.loads(removed.stdout)) == (0, {"removed": ["u-1", "t-1"]})
    assert call("ps", "-aq").stdout == ""


@pytest.mark.core
def test_a_refused_step_is_a_failure_everywhere(call: Call, home: Path) -> None:
    load = step_run("load")
    run = parent(Step(name="load", state="succeeded", run=str(load)))
    tell(run, Step(name="train", state="failed", reason="no node has 8 GPUs", hint="ask for fewer"))
    end(run, 113)
    assert states(call, "t-1") == {"failed"}
    waited = call("wait", "t-1")
    assert (waited.returncode, waited.stdout) == (113, "t-1 failed: step train: no node has 8 GPUs\n")
    assert "  hint: ask for fewer" in call("status", "t-1").stdout


@pytest.mark.core
def test_one_whose_executor_is_killed_is_lost_everywhere(call: Call, home: Path) -> None:
    train = step_run("train", "sleep", "600")
    run = parent(Step(name="train", state="running", run=str(train)))
    kill(run)
    assert states(call, "t-1") == {"lost"}
    assert [row[:2] for row in listed(call)] == [["t-1", "lost"]]  # its step goes on
    assert call("rm", "--finished").stdout == ""
    kept = call("rm", "t-1")
    assert kept.returncode == StateTrouble.exit_code
    assert "step train of 't-1' still runs" in kept.stderr
    said = call("stop", "t-1")
    assert {line.partition(":")[0] for line in said.stdout.splitlines()} == {"t-1 lost", "t-1-train stopped"}
    assert listed(call) == []
    assert call("rm", "--finished").stdout == "t-1\n"
    assert call("ps", "-aq").stdout == ""


def test_steps_are_removed_with_their_parent_alone(call: Call, home: Path) -> None:
    load, alone = step_run("load"), step_run("alone", of="u-1")
    run = parent(Step(name="load", state="succeeded", run=str(load)))
    assert call("rm", "--finished").stdout == f"{alone.name}\n"  # started by another machine, perhaps
    end(run)
    assert call("rm", "--older-than", "1d").stdout == ""
    assert call("rm", "--finished").stdout == "t-1\n"


def test_what_failed_is_resumed(call: Call, home: Path) -> None:
    run = parent(Step(name="load"))
    end(run, 3)
    assert call("wait", "t-1").returncode == 3
    Path("end-t-1").write_text("0")
    assert call("resume", "-d", "t-1").stdout == "t-1\n"
    assert call("wait", "t-1").returncode == 0
    run = parent(name="u-1")
    tell(run, Step(name="load", state="cached"))
    end(run)
    refused = call("resume", "u-1")
    assert refused.returncode == StateTrouble.exit_code
    assert "`echelon notebook run FILE --from STEP`" in refused.stderr


def test_its_results_its_events_and_a_step_s(call: Call, home: Path) -> None:
    load = step_run("load", "sh", "-c", "echo 1 > $ECHELON_OUTPUT/one")
    load.wait()
    run = parent(program=replace(NOTEBOOK, private=("secret",)))
    Path("runs/t-1/secret").touch()
    Path("runs/t-1/model.pt").touch()
    tell(run, Step(name="load", state="succeeded", run=str(load)), Step(name="train"))
    tell(run, Step(name="train", state="failed", reason="bad luck"))
    end(run, 1)
    assert call("get", "t-1").stdout == "runs/t-1\n"
    assert call("get", "t-1", "--to", "out").returncode == 0
    assert Path("out/model.pt").exists()
    assert not Path("out/secret").exists()
    assert call("get", "t-1/load", "one", "--to", "out").stdout == "out/one\n"
    assert call("cp", "t-1/load:one", "copied").returncode == 0
    assert Path("copied").read_text() == "1\n"
    happened = [line.split("  ", 1)[1] for line in call("events", "t-1").stdout.splitlines()]
    assert "steps           load succeeded, train waiting" in happened
    assert "steps           train failed: bad luck" in happened
    told = [json.loads(line) for line in call("events", "t-1", "-o", "json").stdout.splitlines()]
    assert [len(event["steps"]) for event in told if event["kind"] == "steps"] == [2, 1]
    assert call("top", "t-1/load").stdout.startswith("t-1-load: succeeded")


def test_one_whose_steps_are_in_a_cluster(call: Call, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    put_there(monkeypatch, cluster)
    step = step_run("train", "sleep", engine=cluster)
    run = parent(Step(name="train", state="running", run=str(step)), program=IN_CLUSTER)
    for where in ([], ["--on", "k8s"]):
        assert [row[:2] for row in listed(call, *where)] == [["t-1", "running"]]
        assert call("status", "t-1", *where).stdout.startswith("t-1  running")
    assert [row[0] for row in listed(call, "--on", "k8s", "--steps")] == ["t-1", "t-1-train"]
    kill(run)
    assert "t-1-train stopped" in call("stop", "t-1", "--on", "k8s").stdout
    assert call("wait", "t-1", "--on", "k8s").returncode == LOST_EXIT_CODE
    assert call("rm", "--finished", "--on", "k8s").stdout == "t-1\n"
    assert cluster.names() == []


def test_pipelines_of_an_earlier_version_are_told(call: Call, home: Path) -> None:
    folder = Path("runs/old-1").absolute()
    folder.mkdir(parents=True)
    (folder / "pipeline.json").touch()
    (home / "pipelines").mkdir(parents=True)
    (home / "pipelines/old-1.json").write_text(json.dumps({"folder": str(folder)}))
    assert "an earlier version of echelon" in (shown := call("ps", "-a").stderr)
    assert "runs/old-1" in shown
    for words in ([], ["-a", "-q"], ["-a", "-o", "json"]):
        assert "earlier version" not in call("ps", *words).stderr
    assert f"its results are in {folder}" in call("status", "old-1").stderr
