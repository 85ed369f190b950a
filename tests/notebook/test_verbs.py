"""Commands on a notebook's run and on its steps, with its real executor."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.notebook.books import write_book

from echelon.agent.gang.verdict import STOPPED_EXIT_CODE
from echelon.errors import RunTimedOut, UnknownRun

Call = Callable[..., subprocess.CompletedProcess[str]]
WAITS = "pathlib.Path('began.txt').touch()\nwhile not pathlib.Path('go.txt').exists():\n    time.sleep(0.05)"
TWO = [
    ("imports", "import pathlib, time"),
    ("step:first", f"x = 1\nprint('first began', flush=True)\n{WAITS}"),
    ("step:second", "pathlib.Path('second.txt').touch()\nprint('second')"),
]


def states(cli: Call) -> list[str]:
    return [step["state"] for step in json.loads(cli("status", "two-1", "-o", "json").stdout)["steps"]]


@pytest.mark.slow
@pytest.mark.core
def test_one_that_goes_on_is_stopped_taken_up_and_removed(cli: Call) -> None:
    write_book(Path("two.ipynb"), TWO)
    work = Path("runs/two-1/work")
    assert cli("notebook", "run", "-d", "two.ipynb", "--parallel", "1").stdout == "two-1\n"
    wait_until((work / "began.txt").exists, "the first step")
    assert "notebook two.ipynb, 0 of 2 steps" in cli("ps").stdout
    assert cli("wait", "two-1", "--timeout", "0.1s").returncode == RunTimedOut.exit_code
    assert "step second of two-1 is waiting" in cli("logs", "two-1/second").stderr
    assert "has not ended" in cli("rm", "two-1").stderr
    assert cli("stop", "two-1").stdout.startswith("two-1 stopped")
    assert states(cli) == ["stopped", "not-reached"]
    assert cli("wait", "two-1").returncode == STOPPED_EXIT_CODE
    assert not (work / "second.txt").exists()
    assert "first began" in cli("logs", "two-1/first").stdout

    (work / "go.txt").touch()
    resumed = cli("resume", "two-1")
    assert resumed.returncode == 0, resumed.stderr
    assert states(cli) == ["succeeded", "succeeded"]
    assert cli("get", "two-1", "work/second.txt", "--to", "out").stdout == "out/second.txt\n"
    assert cli("get", "two-1", "--to", "all").returncode == 0
    assert sorted(path.name for path in Path("all").iterdir() if path.name[0] != ".") == [
        "logs", "notebook.html", "notebook.ipynb", "pipeline.json", "steps", "work",
    ]  # fmt: skip
    assert cli("rm", "--finished").stdout == "two-1\n"
    assert cli("ps", "-aq").stdout == ""
    assert Path("runs/two-1/notebook.ipynb").exists()


@pytest.mark.slow
def test_one_from_the_cache_has_a_row_and_no_runs_of_steps(cli: Call) -> None:
    write_book(Path("good.ipynb"), [("step:load", "x = 1"), ("step:train prev:load", "y = x")])
    for _ in range(2):
        done = cli("notebook", "run", "good.ipynb", "--cache")
        assert done.returncode == 0, done.stderr
    assert "notebook good.ipynb, 2 steps" in next(
        line for line in cli("ps", "-a").stdout.splitlines() if line.startswith("good-2 ")
    )
    assert [line.split()[:2] for line in cli("status", "good-2").stdout.splitlines()[-2:]] == [
        ["load", "cached"],
        ["train", "cached"],
    ]
    taken = cli("status", "good-2/load")
    assert taken.returncode == UnknownRun.exit_code
    assert "step load of good-2 was taken from an earlier run: cached" in taken.stderr
    assert cli("wait", "good-2").returncode == cli("logs", "good-2").returncode == 0
    assert json.loads(cli("rm", "good-2", "-o", "json").stdout) == {"removed": ["good-2"]}
    assert set(cli("ps", "-aq").stdout.split()) == {"good-1", "good-1-load", "good-1-train"}


@pytest.mark.slow
def test_names_that_were_cut_are_known_uncut(cli: Call) -> None:
    book, step = "a-rather-long-notebook-name", "load_the_training_data"
    write_book(Path(f"{book}.ipynb"), [(f"step:{step}", "print('loaded')")])
    assert cli("notebook", "run", f"{book}.ipynb").returncode == 0
    for typed in (f"{book}-1/{step}", f"{book}-1-{step.replace('_', '-')}", f"{book}-1"):
        assert "loaded" in cli("logs", typed).stdout
        assert cli("status", typed).returncode == cli("wait", typed).returncode == 0
    unknown = cli("logs", f"{book}-2-{step}")
    assert unknown.returncode == UnknownRun.exit_code
    suggested = unknown.stderr.partition("did you mean '")[2].partition("'")[0]
    assert suggested in cli("ps", "-a", "-q").stdout.split()
    assert cli("rm", f"{book}-1").returncode == 0
    assert cli("ps", "-a", "-q").stdout == ""
