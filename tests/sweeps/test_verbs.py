"""Commands on a sweep and on its trials, with its real executor."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import wait_until

from echelon.errors import InvalidJob, RunExists, StateTrouble, UnknownRun, Unplaceable

Call = Callable[..., subprocess.CompletedProcess[str]]
SCRIPT = """
import os, pathlib, sys, time

lr, bs = float(sys.argv[1]), os.environ["ECHELON_PARAM_BS"]
out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
with (out / "starts").open("a") as file:
    print(os.getpid(), file=file)
print(f"val_loss={9.0}")
print(f"val_loss={lr * int(bs)}")
while not pathlib.Path(os.environ.get("GO", "go")).exists() and "--wait" in sys.argv:
    time.sleep(0.02)
if bs == "64" and not pathlib.Path("mended").exists():
    raise ValueError("too large")
"""


@pytest.fixture
def script(home: Path) -> str:
    Path("train.py").write_text(SCRIPT)
    return "train.py"


def rows(cli: Call, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cli("status", name, "-o", "csv").stdout)))


def starts(trial: int, name: str = "tune") -> int:
    return len(Path(f"runs/{name}/{trial}/starts").read_text().split())


@pytest.mark.slow
@pytest.mark.core
def test_a_sweep_whose_trial_fails_is_looked_at_resumed_and_removed(cli: Call, script: str) -> None:
    words = ["lr=0.1,0.2", "bs=32,64", "--minimize", "val_loss", "--parallel", "2", "--name", "tune"]
    done = cli("sweep", *words, "--", script, "{lr}")
    assert done.returncode == 1, done.stderr
    assert "{bs} is in no argument: the script finds bs as ECHELON_PARAM_BS" in done.stderr
    assert re.search(r"trial 2 failed .*ValueError: too large", done.stderr)
    assert "failed after" in done.stderr
    assert "trial 2 and 1 more: rank 0 exited with code 1: ValueError: too large" in done.stderr
    assert "best val_loss 3.2 (lr=0.1, bs=32): trial 1" in done.stderr
    assert "[1] val_loss=3.2" in done.stdout

    row = next(line for line in cli("ps", "-a").stdout.splitlines() if line.startswith("tune "))
    assert "sweep train.py {lr}, 2 of 4 trials, best val_loss 3.2 (lr=0.1, bs=32)" in row
    assert cli("ps", "-a").stdout.count("\n") == 2  # its trials are not rows of their own
    shown = cli("status", "tune").stdout.splitlines()
    assert "  trials     2 of 4 done, best val_loss 3.2 (lr=0.1, bs=32)" in shown
    assert [line.split()[:5] for line in shown[-4:]] == [
        ["1", "0.1", "32", "3.2", "succeeded"],
        ["2", "0.1", "64", "6.4", "failed"],
        ["3", "0.2", "32", "6.4", "succeeded"],
        ["4", "0.2", "64", "12.8", "failed"],
    ]
    as_data = json.loads(cli("status", "tune", "-o", "json").stdout)
    assert as_data["objective"]["metric"] == "val_loss"
    assert as_data["steps"][0]["params"] == {"lr": "0.1", "bs": "32"}
    assert as_data["steps"][0]["value"] == pytest.approx(3.2)
    assert cli("logs", "tune/3").stdout.startswith("val_loss=9.0\n")
    assert "its trials are 1, 2, 3, 4" in (unknown := cli("logs", "tune/5")).stderr
    assert unknown.returncode == UnknownRun.exit_code

    Path("mended").touch()
    resumed = cli("resume", "tune")
    assert resumed.returncode == 0, resumed.stderr
    table = rows(cli, "tune")
    assert [row["state"] for row in table] == ["succeeded"] * 4
    assert [row["trial"] for row in table] == ["1", "2", "3", "4"]
    assert Path("runs/tune/trials.csv").read_text() == cli("status", "tune", "-o", "csv").stdout
    assert [starts(trial) for trial in (1, 2, 3, 4)] == [1, 2, 1, 2]
    again = cli("resume", "tune")
    assert again.returncode == StateTrouble.exit_code
    assert "every trial has succeeded" in again.stderr
    assert cli("logs", "tune/1").returncode == 0  # of one that was kept
    assert cli("get", "tune", "3/starts", "--to", "out").stdout == "out/starts\n"
    assert json.loads(cli("rm", "tune", "-o", "json").stdout) == {"removed": ["tune"]}
    assert cli("ps", "-aq").stdout == ""
    assert Path("runs/tune/trials.csv").exists()


@pytest.mark.slow
def test_a_stop_starts_no_trial_any_more_and_resume_runs_what_is_missing(cli: Call, script: str) -> None:
    words = ["lr=1,2,3,4", "bs=32", "--parallel", "2", "--name", "tune", "-d"]
    assert cli("sweep", *words, "--", script, "{lr}", "--wait").stdout == "tune\n"
    wait_until(lambda: all(Path(f"runs/tune/{trial}/starts").exists() for trial in (1, 2)), "two trials")
    assert "0 of 4 trials" in cli("ps").stdout
    assert "trial 3 of tune is waiting" in cli("logs", "tune/3").stderr
    assert cli("stop", "tune").stdout.startswith("tune stopped")
    assert [row["state"] for row in rows(cli, "tune")] == ["stopped"] * 2 + ["not-reached"] * 2
    Path("go").touch()
    assert cli("resume", "tune").returncode == 0
    assert [row["state"] for row in rows(cli, "tune")] == ["succeeded"] * 4
    assert [starts(trial) for trial in (1, 2, 3, 4)] == [2, 2, 1, 1]


@pytest.mark.slow
def test_a_sweep_that_is_in_a_job_file(cli: Call, script: str) -> None:
    Path("job.yaml").write_text(
        f"script: {script}\nargs: ['{{lr}}']\n"
        "sweep:\n  space: {lr: [1, 2], bs: [32]}\n  minimize: val_loss\n"
    )
    refused = cli("run", "-f", "job.yaml")
    assert refused.returncode == InvalidJob.exit_code
    assert "`echelon sweep -f FILE`" in refused.stderr
    assert cli("sweep", "-f", "job.yaml", "--name", "one").returncode == 0
    assert [row["val_loss"] for row in rows(cli, "one")] == ["32.0", "64.0"]
    words = ["-f", "job.yaml", "lr=3", "--name", "two", "--", "--env", "A=1"]
    assert cli("sweep", *words).returncode == 0
    assert [row["val_loss"] for row in rows(cli, "two")] == ["96.0"]


@pytest.mark.slow
def test_with_fail_fast_one_trial_ends_all(cli: Call, script: str) -> None:
    words = ["bs=64,32", "lr=1,2", "--parallel", "1", "--name", "tune", "--fail-fast"]
    done = cli("sweep", *words, "--", script, "{lr}")
    assert done.returncode == 1
    assert [row["state"] for row in rows(cli, "tune")] == ["failed"] + ["not-reached"] * 3


@pytest.mark.slow
def test_all_trials_run_the_code_that_there_was(cli: Call, script: str) -> None:
    words = ["lr=1,2", "bs=32", "--parallel", "1", "--name", "tune", "-d"]
    assert (
        cli(
            "sweep",
            *words,
            "--",
            "--snapshot",
            "--env",
            f"GO={Path('go').absolute()}",
            script,
            "{lr}",
            "--wait",
        ).returncode
        == 0
    )
    wait_until(Path("runs/tune/1/starts").exists, "the first trial")
    Path(script).write_text("raise SystemExit(7)")
    Path("go").touch()
    assert cli("wait", "tune").returncode == 0
    assert not Path("runs/tune/2/code").exists()


def test_nothing_is_left_of_what_cannot_work(call: Call, script: str) -> None:
    refused = call("sweep", "lr=1,2", "--name", "tune", "--", "--gpus", "3", script)
    assert refused.returncode == Unplaceable.exit_code
    for words in (
        ["lr=1..2.5", "--", script],
        ["lr=1", "--", "--replace", "--name", "tune", script],
        ["lr=1", "--name", "x" * 39, "--", script],
    ):
        refused = call("sweep", *words)
        assert refused.returncode == InvalidJob.exit_code, refused.stderr
        assert "hint" in refused.stderr
    assert not Path("runs").exists()
    assert call("ps", "-aq").stdout == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lr=1,2"], "the script comes after --"),
        (["lr=1,2", "--"], "Nothing to run"),
        (["lr=1", "--", "--no-such", "train.py"], "No such option '--no-such'"),
        (["lr=1", "--", "--show-rank", "0", "train.py"], "--show-rank is not for what a sweep runs"),
    ],
)
def test_wrong_usage_says_what_is_right(call: Call, words: list[str], told: str) -> None:
    refused = call("sweep", *words)
    assert refused.returncode == 2
    assert told in refused.stderr


@pytest.mark.slow
def test_the_name_of_another_run_is_not_taken(cli: Call, script: str) -> None:
    assert cli("run", "--name", "tune-2", "--", "true").returncode == 0
    refused = cli("sweep", "lr=1,2", "--name", "tune", "--", script)
    assert refused.returncode == RunExists.exit_code
    assert "there is a run 'tune-2' already" in refused.stderr
    assert not Path("runs/tune").exists()
    assert cli("status", "tune-2").stdout.startswith("tune-2  succeeded")


def test_a_dry_run_shows_the_trials_and_what_the_first_would_do(call: Call, script: str) -> None:
    Path("trials.csv").write_text("lr,bs\n0.1,32\n0.2,64\n")
    shown = call("sweep", "@trials.csv", "--seeds", "2", "--name", "tune", "--dry-run", "--", script, "{lr}")
    assert shown.returncode == 0, shown.stderr
    assert [line.split() for line in shown.stdout.splitlines()[:5]] == [
        ["TRIAL", "lr", "bs", "seed"],
        ["1", "0.1", "32", "0"],
        ["2", "0.1", "32", "1"],
        ["3", "0.2", "64", "0"],
        ["4", "0.2", "64", "1"],
    ]
    assert "run tune-1 on this machine" in shown.stdout
    assert "train.py 0.1" in shown.stdout
    told = json.loads(call("sweep", "lr=1,2", "--dry-run", "-o", "json", "--", script).stdout)
    assert [trial["values"] for trial in told["trials"]] == [{"lr": "1"}, {"lr": "2"}]
    assert not Path("runs").exists()


def test_only_a_run_that_is_made_of_runs_has_a_table_of_them(cli: Call) -> None:
    assert cli("run", "--name", "one", "--", "true").returncode == 0
    refused = cli("status", "one", "-o", "csv")
    assert refused.returncode == 2
    assert "-o csv is for a sweep" in refused.stderr
