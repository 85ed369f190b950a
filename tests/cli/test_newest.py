"""A command without a name means the newest run of the folder; ended runs are replaced and removed."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import echelon
from echelon.cli.main import cli as group
from echelon.errors import UnknownRun

Call = Callable[..., subprocess.CompletedProcess[str]]
SAID = "echelon: run second, the newest of this folder\n"


@pytest.fixture
def two(cli: Call) -> None:
    Path("train.py").write_text("import sys; print('as', sys.argv[1]); sys.exit(int(sys.argv[2]))")
    assert cli("run", "--name", "first", "train.py", "first", "0").returncode == 0
    assert cli("run", "--name", "second", "train.py", "second", "3").returncode == 3


def test_the_newest_run_of_the_folder_is_meant_and_said(cli: Call, two: None) -> None:
    shown = cli("logs")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "as second\n", SAID)
    waited = cli("wait")
    assert (waited.returncode, waited.stderr.startswith(SAID)) == (3, True)
    assert "second" in cli("status").stdout
    assert cli("stop").stdout.startswith("second failed")
    as_data = cli("status", "-o", "json")
    assert (json.loads(as_data.stdout)["name"], as_data.stderr) == ("second", "")
    assert echelon.attach().name == "second"
    assert cli("logs", "first").stderr == ""


def test_a_run_that_is_gone_is_not_the_newest(cli: Call, two: None) -> None:
    assert cli("rm", "second").returncode == 0
    assert cli("logs").stdout == "as first\n"
    assert cli("rm", "first").returncode == 0
    nothing = cli("status")
    assert nothing.returncode == UnknownRun.exit_code
    assert "no run was started from this folder" in nothing.stderr


def test_another_folder_has_its_own_newest(cli: Call, two: None) -> None:
    Path("elsewhere").mkdir()
    nothing = cli("logs", cwd="elsewhere")
    assert nothing.returncode == UnknownRun.exit_code
    assert cli("resume", "second", cwd="elsewhere").returncode == 3
    assert cli("logs", cwd="elsewhere").stdout == "as second\nas second\n"  # of both starts


def test_an_ended_run_is_replaced_and_its_results_are_kept(cli: Call, two: None) -> None:
    refused = cli("run", "--name", "second", "train.py", "again", "0")
    assert (refused.returncode, "a run named 'second' exists" in refused.stderr) == (112, True)
    assert "--replace takes its place" in refused.stderr
    done = cli("run", "--name", "second", "--replace", "train.py", "again", "0")
    assert (done.returncode, done.stdout) == (0, "again\n".replace("again", "as again")), done.stderr
    assert f"the results of the run before are in {Path.cwd() / 'runs/second.1'}" in done.stderr
    assert Path("runs/second.1/logs/rank-0.log").read_text() == "as second\n"
    assert Path("runs/second/logs/rank-0.log").read_text() == "as again\n"
    resumed = cli("run", "--name", "second", "--replace", "--reuse-results", "train.py", "more", "0")
    assert resumed.returncode == 0, resumed.stderr
    assert Path("runs/second/logs/rank-0.log").read_text() == "as again\nas more\n"
    assert cli("run", "--name", "new", "--replace", "train.py", "new", "0").returncode == 0
    assert cli("run", "--replace", "train.py", "x", "0").returncode == 110
    assert cli("rm", "new").returncode == 0
    again = cli("run", "--name", "new", "train.py", "new", "0")
    assert (again.returncode, "--replace renames" in again.stderr) == (115, True)
    assert cli("run", "--name", "new", "--replace", "train.py", "new", "0").returncode == 0
    assert Path("runs/new.1/logs/rank-0.log").read_text() == "as new\n"
    run = echelon.run("train.py", args=["python", "0"], name="second", replace=True)
    assert [line.text for line in run.logs(follow=True)] == ["as python"]
    run.wait()


def test_a_run_that_goes_on_is_never_replaced(cli: Call, home: Path) -> None:
    Path("train.py").write_text("import time; time.sleep(600)")
    assert cli("run", "-d", "--name", "fm", "train.py").returncode == 0
    refused = cli("run", "--name", "fm", "--replace", "train.py")
    assert refused.returncode == 112
    assert "only a run that has ended is replaced" in refused.stderr
    assert cli("ps", "-q").stdout == "fm\n"
    assert json.loads(cli("ps", "-q", "-o", "json").stdout) == ["fm"]
    assert cli("rm", "--finished").stdout == ""
    assert cli("stop", "--now").returncode == 0
    assert cli("ps", "-q").stdout == ""
    assert cli("rm", "--finished").stdout == "fm\n"


def test_ended_runs_are_removed_together(cli: Call, two: None, home: Path) -> None:
    assert cli("rm").returncode == 2
    assert cli("rm", "first", "--finished").returncode == 2
    none = cli("rm", "--older-than", "1h")
    assert (none.returncode, none.stdout) == (0, "")
    assert "no run of yours has ended longer ago than 1h" in none.stderr
    assert cli("rm", "--older-than", "long").returncode == 110
    old = json.loads((home / "runs/first/final.json").read_text())
    (home / "runs/first/final.json").write_text(json.dumps({**old, "at": time.time() - 8 * 86400}))
    assert cli("rm", "--older-than", "7d").stdout == "first\n"
    assert cli("ps", "-aq").stdout == "second\n"
    assert json.loads(cli("rm", "--finished", "-o", "json").stdout) == {"removed": ["second"]}
    assert Path("runs/first/logs/rank-0.log").exists()


def test_a_state_folder_that_cannot_be_written_costs_no_run(cli: Call, home: Path) -> None:
    if os.geteuid() == 0:
        home.mkdir(parents=True, exist_ok=True)
        (home / "started").write_text("in the way")  # root may write anywhere
    Path("train.py").write_text("print('ran')")
    assert cli("run", "train.py").stdout == "ran\n"
    assert cli("logs").returncode == UnknownRun.exit_code


def test_the_shell_completes_the_new_flags() -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(group, {}, "echelon", "_ECHELON_COMPLETE")
    assert {"--finished", "--older-than"} <= {each.value for each in complete.get_completions(["rm"], "--")}
    assert "--quiet" in {each.value for each in complete.get_completions(["ps"], "--")}
    assert "--replace" in {each.value for each in complete.get_completions(["run"], "--re")}
