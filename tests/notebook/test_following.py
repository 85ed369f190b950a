"""A pipeline by its name: `wait`, `get`, `logs -f`, `ps` and `rm`, also of one that came from the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.notebook.books import new_folder, write_book

from echelon.errors import RunTimedOut
from echelon.notebook.kept.folder import (
    PipelineFolder,
    PipelineRecord,
    StepRecord,
    held,
    is_held,
    is_to_stop,
    order_stop,
    write_record,
)
from echelon.notebook.kept.noted import forget_pipeline, note_pipeline, noted, noted_pipelines

Call = Callable[..., subprocess.CompletedProcess[str]]
# The second step waits for a file, so that the first is over while the pipeline is not.
TWO = [
    ("imports", "import pathlib, time"),
    ("step:load", "x = 2\nprint('loaded', x)\npathlib.Path('made.txt').write_text('by load')"),
    (
        "step:train prev:load",
        "while not pathlib.Path('go.txt').exists():\n    time.sleep(0.05)\ny = x + 1\nprint('trained', y)",
    ),
]


def folder_with(root: Path, name: str, *states: str) -> PipelineFolder:
    folder = new_folder(root / name)
    steps = {f"s{number}": StepRecord(state=state, ended=5.0) for number, state in enumerate(states)}  # type: ignore[arg-type]
    write_record(folder, PipelineRecord(name=name, notebook="", created=1.0, steps=steps))
    note_pipeline(folder)
    return folder


def test_those_that_are_noted_are_found_by_their_names(home: Path, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "a-1", "cached", "cached")
    (tmp_path / "c-1").mkdir()
    note_pipeline(PipelineFolder(tmp_path / "c-1"))  # its record is gone
    (found,) = noted_pipelines()
    assert (found.record.name, found.held) == ("a-1", False)
    with held(folder):
        (found,) = noted_pipelines()
    assert found.held
    assert noted("c-1") is None
    assert noted("k8s://team/a-1") is None
    forget_pipeline("a-1")
    assert noted("a-1") is None


def test_an_order_to_stop_is_for_the_command_that_runs_now(home: Path, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "a-1", "waiting")
    assert not order_stop(folder)
    assert not is_to_stop(folder)
    with held(folder):
        assert order_stop(folder)
        assert order_stop(folder)  # somebody is impatient
        assert is_to_stop(folder)
    (folder.path / "stop").touch()  # its command was killed
    with held(folder):
        assert not is_to_stop(folder)


def test_a_look_at_who_runs_the_steps_keeps_nobody_away(home: Path, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "a-1", "waiting")
    assert not is_held(folder)
    with held(folder):
        assert is_held(folder)
    assert not is_held(folder)


@pytest.mark.slow
def test_a_pipeline_that_goes_on(cli: Call, tmp_path: Path) -> None:
    """`wait` and `logs -f` that begin before the second step has started last until its end."""
    write_book(Path("two.ipynb"), TWO)

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "echelon.cli.main", *words],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    commands = [start("notebook", "run", "two.ipynb")]
    try:
        wait_until(lambda: Path("runs", "two-1", "work", "made.txt").exists(), "the first step")
        early = cli("wait", "two-1", "--timeout", "1s")
        commands += [start("wait", "two-1"), start("logs", "-f", "two-1")]
    finally:
        Path("runs", "two-1", "work", "go.txt").write_text("")
        _, told, said = [*(each.communicate(timeout=3 * PATIENCE)[0] for each in commands), "", ""][:3]
    assert early.returncode == RunTimedOut.exit_code, early.stderr
    assert [each.returncode for each in commands] == [0, 0, 0], told + said
    assert "[load] loaded 2" in said
    assert "[train] trained 3" in said
    assert "two-1-load succeeded" in told
    assert "two-1-train succeeded" in told
    got = cli("get", "two-1", "work/made.txt", "--to", "out")
    assert got.returncode == 0, got.stderr
    assert Path("out/made.txt").read_text() == "by load"
    assert cli("get", "two-1").stdout.strip() == "runs/two-1"
    os.mkfifo(Path("runs", "two-1", "work", "pipe"))
    assert "not copied: work/pipe: a pipe" in cli("get", "two-1", "--to", "all").stderr
    assert Path("all", "work", "made.txt").exists()
    assert not Path("all/secret").exists()


@pytest.mark.slow
def test_one_that_fails_and_one_from_the_cache(cli: Call) -> None:
    write_book(Path("bad.ipynb"), [("step:load", "x = 1"), ("step:train prev:load", "raise SystemExit(7)")])
    assert cli("notebook", "run", "bad.ipynb").returncode == cli("wait", "bad-1").returncode != 0

    write_book(Path("good.ipynb"), [("step:load", "x = 1"), ("step:train prev:load", "y = x")])
    for _ in range(2):
        done = cli("notebook", "run", "good.ipynb", "--cache")
        assert done.returncode == 0, done.stderr
    assert "2 steps from the cache" in cli("ps", "-a").stdout
    assert "good-2" not in cli("ps").stdout
    assert "good-2" in cli("status", "good-2").stdout
    assert cli("wait", "good-2").returncode == 0
    assert cli("logs", "good-2").returncode == cli("logs", "-f", "good-2").returncode == 0
    assert cli("get", "good-2").stdout.strip() == "runs/good-2"
    removed = cli("rm", "good-2", "-o", "json")
    assert json.loads(removed.stdout) == {"removed": ["good-2"]}, removed.stderr
    assert "good-2" not in cli("ps", "-a").stdout
    assert Path("runs/good-2/notebook.ipynb").exists()
    assert cli("notebook", "run", "good.ipynb", "--cache").returncode == 0  # good-3
    assert "good-3" in cli("rm", "--finished").stdout


@pytest.mark.slow
def test_names_that_were_cut_are_known_uncut(cli: Call) -> None:
    book, step = "a-rather-long-notebook-name", "load_the_training_data"
    write_book(Path(f"{book}.ipynb"), [(f"step:{step}", "print('loaded')")])
    assert cli("notebook", "run", f"{book}.ipynb").returncode == 0
    for typed in (f"{book}-1-{step}", f"{book}-1-{step.replace('_', '-')}", f"{book}-1"):
        assert cli("logs", typed).stdout == "loaded\n"
        assert cli("status", typed).returncode == cli("wait", typed).returncode == 0
    unknown = cli("logs", f"{book}-2-{step}")
    assert unknown.returncode == 111
    suggested = unknown.stderr.partition("did you mean '")[2].partition("'")[0]
    assert suggested in cli("ps", "-a", "-q").stdout.split()
    assert "for example" not in cli("logs", "My_Run").stderr  # no run has that name
    assert cli("rm", f"{book}-1").returncode == 0
    assert cli("ps", "-a", "-q").stdout == ""
