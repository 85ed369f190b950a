"""`echelon compare`: of runs and of trials, on this machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.parents import end, parent

from echelon.cli.commands.compare import _show
from echelon.comparison.comparing import CodeDifference, Compared, Comparison
from echelon.engines.abilities import ShippedCode
from echelon.errors import InvalidJob, UnknownRun
from echelon.handle import Run

Call = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = """
import sys
for step in range(3):
    print(f"step={step} loss={1 / (step + 1) if step < 2 else float(sys.argv[1])}")
"""


def test_two_runs_that_differ_in_all(call: Call, home: Path) -> None:
    Path("train.py").write_text(TRAIN)
    words = ["--snapshot", "train.py"]
    assert call("run", "--name", "a", "--env", "TOKEN=one-secret", *words, "0.5").returncode == 0
    Path("train.py").write_text(TRAIN.replace("import sys", "import sys  # again"))
    assert call("run", "--name", "b", "--env", "TOKEN=other-secret", *words, "0.25").returncode == 0
    done = call("compare", "a", "b")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "argument 0.5 0.25" in lines
    assert "environment TOKEN (hidden) (hidden)" in lines
    assert "code of a and b: 1 file differs" in lines
    assert "+import sys # again" in lines
    assert "loss from step 2 on: 0.5, 0.25 0.5 0.25" in lines
    as_data = call("compare", "a", "b", "-o", "json").stdout
    assert "-secret" not in as_data + done.stdout
    found = json.loads(as_data)
    assert [run["name"] for run in found["runs"]] == ["a", "b"]
    assert found["code"][0]["files"][0]["path"] == "train.py"
    assert (found["metrics"][0]["parts_at"], found["metrics"][0]["common"]) == (2, 3)


@pytest.mark.slow
def test_trials_and_a_run_that_ran_in_place(call: Call, home: Path) -> None:
    Path("train.py").write_text(TRAIN)
    words = ["x=1,2,3,4,5", "--parallel", "2", "--name", "tune", "--", "--snapshot", "train.py", "{x}"]
    assert call("sweep", *words).returncode == 0
    assert call("run", "--name", "alone", "train.py", "1").returncode == 0
    two = call("compare", "tune/1", "tune/2").stdout
    assert "parameter x  1          2" in two
    assert "the same code" in two
    assert "argument" not in two
    every = [line.split() for line in call("compare", "tune").stdout.splitlines()]
    assert every[0] == ["RUN", "STATE", "TOOK", "PARAMETER", "X"]
    assert [row[0] for row in every[1:6]] == [f"tune-{number}" for number in range(1, 6)]
    assert every[-1] == ["tune-5", "5"]
    both = call("compare", "tune/1", "alone").stdout
    assert "code of tune-1 and alone: that of alone was not shipped, and no copy was kept" in both


@pytest.mark.slow
def test_a_long_difference_and_an_archive_that_is_elsewhere(
    call: Call, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, lines in (("a", 5), ("b", 100)):
        Path("train.py").write_text("print('loss=1')\n" * lines)
        assert call("run", "--name", name, "--snapshot", "train.py").returncode == 0
    assert "61 more lines: --diff" in call("compare", "a", "b").stdout
    assert call("compare", "a", "b", "--diff").stdout.count("+print") == 95
    codes = {"a": ShippedCode(digest="1"), "b": ShippedCode(digest="2", archive=b"no archive")}
    monkeypatch.setattr(Run, "code", lambda run: codes[run.name])
    assert "this machine does not have that of a" in call("compare", "a", "b").stdout
    codes["a"] = ShippedCode(digest="1", archive=b"nor this")
    assert "an archive cannot be read" in call("compare", "a", "b").stdout
    codes["a"] = ShippedCode(digest="2")
    assert "the same code" in call("compare", "a", "b").stdout


def test_what_cannot_be_compared(call: Call, home: Path) -> None:
    assert call("compare").returncode == 2
    unknown = call("compare", "fm", "other")
    assert unknown.returncode == UnknownRun.exit_code
    run = parent(name="fm-1")
    end(run)
    few = call("compare", "fm-1")
    assert (few.returncode, "fewer than two runs" in few.stderr) == (InvalidJob.exit_code, True)
    twice = call("compare", "fm-1", "fm-1")
    assert (twice.returncode, "named twice" in twice.stderr) == (InvalidJob.exit_code, True)


def test_code_that_was_not_kept_is_told_of_a_few_runs_only(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"tune-{number}" for number in range(1, 101)]
    runs = tuple(
        Compared(name=name, uri=name, state="succeeded", created=0.0, seconds=1.0, restarts=0)
        for name in names
    )
    code = tuple(CodeDifference(run=name, verdict="unknown", reason="no copy was kept") for name in names[1:])
    _show(Comparison(runs=runs, differences=(), code=code, metrics=()), whole=False)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("code of")]
    assert told == [
        *(f"code of tune-1 and tune-{number}: no copy was kept" for number in range(2, 6)),
        "code of 95 more runs: not known; -o json has why",
    ]
