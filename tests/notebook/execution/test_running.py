"""Pipelines through the command line, with every step a real run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.notebook.books import write_book

import echelon
from echelon.state_home import state_home

Call = Callable[..., subprocess.CompletedProcess[str]]
FAN = [
    ("imports", "import math, os, pathlib"),
    ("pipeline-parameters", "n: int = 3\nscale = 1.5"),
    ("functions", "def scaled(x):\n    return x * scale"),
    ("step:load", "data = list(range(n))\npathlib.Path('made.txt').write_text('by load')\ndata"),
    ("step:left prev:load", "left = sum(scaled(x) for x in data)\nprint('left is', left)"),
    ("step:right prev:load", "right = math.prod(x + 1 for x in data)\nprint('right is', right)"),
    ("step:join prev:left prev:right", "total = left + right\nprint(pathlib.Path('made.txt').read_text())"),
    ("", "own = pathlib.Path('beside.txt').read_text()"),
    ("pipeline-metrics", "print(total)\nprint(own)"),
]


def record_of(name: str) -> dict:
    found = json.loads(Path("runs", name, "pipeline.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_fan_out_and_in_with_parameters_twice_under_one_name(cli: Call) -> None:
    write_book(Path("fan.ipynb"), FAN)
    Path("beside.txt").write_text("read where it is")
    first = cli("notebook", "run", "fan.ipynb")
    assert first.returncode == 0, first.stderr
    assert "total: 10.5" in first.stdout
    assert "own: 'read where it is'" in first.stdout
    assert "[left] left is 4.5" in first.stdout
    assert "[join] by load" in first.stdout
    second = cli("notebook", "run", "fan.ipynb", "--param", "n=4", "--cache", "-o", "json")
    assert second.returncode == 0, second.stderr
    told = json.loads(second.stdout)
    assert told["name"] == "fan-2"
    assert told["steps"]["join"]["metrics"]["total"] == 6 * 1.5 + 24
    assert {step["state"] for step in told["steps"].values()} == {"succeeded"}
    third = cli("notebook", "run", "fan.ipynb", "--param", "n=4", "--cache")
    assert third.returncode == 0, third.stderr
    assert {step["state"] for step in record_of("fan-3")["steps"].values()} == {"cached"}
    assert Path("runs", "fan-3", "work", "made.txt").read_text() == "by load"  # files come from the cache too
    assert not Path("made.txt").exists()  # nothing is written beside the notebook

    executed = json.loads(Path("runs/fan-1/notebook.ipynb").read_text())
    outputs = {number: cell["outputs"] for number, cell in enumerate(executed["cells"], 1)}
    assert outputs[4][0]["data"]["text/plain"] == "[0, 1, 2]"
    assert outputs[5][0]["text"] == "left is 4.5\n"
    page = Path("runs/fan-1/notebook.html").read_text()
    assert "left is 4.5" in page
    assert "total: 10.5" in page
    import nbformat

    nbformat.validate(nbformat.read("runs/fan-1/notebook.ipynb", as_version=4))

    listed = cli("ps", "-a").stdout
    assert "fan-1-load" not in listed
    assert "notebook fan.ipynb, 4 steps" in listed
    assert "step load of fan-1" in cli("ps", "-a", "--steps").stdout
    assert cli("logs", "fan-1-left").stdout.strip() == "left is 4.5"


@pytest.mark.slow
def test_a_failed_step_shows_its_cell_and_from_goes_on_there(cli: Call) -> None:
    cells = [
        ("step:load", "x = 2\nprint('loading')"),
        ("step:train prev:load", "import pathlib\n\ny = x / len(pathlib.Path('size.txt').read_text())"),
        ("step:use prev:train", "print('y is', y)"),
        ("step:beside prev:load", "print('beside')"),
    ]
    write_book(Path("book.ipynb"), cells)
    Path("size.txt").write_text("")
    failed = cli("notebook", "run", "book.ipynb")
    assert failed.returncode == 1
    assert "step train failed in cell 2, line 3: ZeroDivisionError: division by zero" in failed.stderr
    assert 'File "book.ipynb, cell 2", line 3, in <module>' in failed.stderr
    assert "step.py" not in failed.stderr  # no line of echelon's own
    assert {name: step["state"] for name, step in record_of("book-1")["steps"].items()} == {
        "load": "succeeded",
        "train": "failed",
        "use": "not-reached",
        "beside": "succeeded",
    }
    Path("size.txt").write_text("four")
    going_on = cli("notebook", "run", "book.ipynb", "--from", "train")
    assert going_on.returncode == 0, going_on.stderr
    assert "y is 0.5" in going_on.stdout
    assert "loading" not in going_on.stdout
    assert record_of("book-1")["steps"]["load"]["state"] == "kept"
    assert not Path("runs/book-2").exists()
    only = cli("notebook", "run", "book.ipynb", "--only", "use")
    assert only.returncode == 0, only.stderr
    assert "y is 0.5" in only.stdout
    assert cli("notebook", "run", "book.ipynb", "--from", "nope").returncode == 110


def test_a_killed_step_names_step_cell_and_cause(cli: Call) -> None:
    cells = [
        ("step:a", "x = 1"),
        ("step:b prev:a", "y = x"),
        ("", "import os, signal\nos.kill(os.getpid(), 9)"),
    ]
    write_book(Path("book.ipynb"), cells)
    killed = cli("notebook", "run", "book.ipynb")
    assert killed.returncode == 128 + 9
    assert "step b failed in cell 3: rank 0 was killed by SIGKILL" in killed.stderr
    assert "`echelon resume book-1` continues" in killed.stderr


def test_a_step_without_memory_names_step_cell_line_and_cause(cli: Call) -> None:
    take = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
    take += "blocks = [bytearray(10**8) for _ in range(50)]"
    write_book(Path("book.ipynb"), [("step:a", "x = 1"), ("step:b prev:a", "y = x"), ("", take)])
    failed = cli("notebook", "run", "book.ipynb")
    assert failed.returncode == 1
    assert "step b failed in cell 3, line 3: MemoryError" in failed.stderr
    assert "`echelon resume book-1` continues" in failed.stderr


def test_a_module_that_is_missing_is_told_with_the_python_that_lacks_it(cli: Call) -> None:
    write_book(Path("book.ipynb"), [("step:a", "import no_such_module_here")])
    failed = cli("notebook", "run", "book.ipynb")
    assert "failed in cell 1, line 1: ModuleNotFoundError" in failed.stderr
    assert "  hint: no_such_module_here is not in the environment of" in failed.stderr


def test_show_names_the_step_of_a_cell_without_tags(cli: Call) -> None:
    write_book(Path("book.ipynb"), [("imports", "import math"), ("step:a", "x = 1"), ("", "y = 2")])
    assert cli("notebook", "show", "book.ipynb").stdout.splitlines()[-1].split() == [
        "3", "(step", "a)", "y", "=", "2",
    ]  # fmt: skip
    write_book(Path("book.ipynb"), [("step:a prev:b prev:c", "x = 1"), ("", "y = 2")])
    shown = cli("notebook", "show", "book.ipynb")
    assert shown.stdout.splitlines()[-1].split() == ["2", "y", "=", "2"]
    assert [line for line in shown.stderr.splitlines() if "hint" not in line] == [
        "echelon: cell 1: prev:b: 'b' is not a step",
        "echelon: cell 1: prev:c: 'c' is not a step",
    ]
    write_book(Path("book.ipynb"), [("", "x = 1")])
    assert cli("notebook", "show", "book.ipynb").stderr == ""  # it may be about to be tagged


def test_steps_follow_one_that_gets_another_name(cli: Call) -> None:
    write_book(Path("book.ipynb"), [("step:a", "x = 1"), ("", "1"), ("step:b prev:a", "print(x)")])
    tag = ("notebook", "tag", "book.ipynb", "1", "--remove")
    assert cli(*tag, "step:a", "step:c").stdout == "cell 1: step:c\ncell 3: step:b prev:c\n"
    assert "x from c" in cli("notebook", "graph", "book.ipynb").stdout
    assert json.loads(cli(*tag, "step:c", "step:d", "-o", "json").stdout) == {
        "cell": 1,
        "tags": ["step:d"],
        "others": [{"cell": 3, "tags": ["step:b", "prev:d"]}],
    }


def test_what_cannot_work_is_refused_before_anything_starts(cli: Call) -> None:
    write_book(Path("book.ipynb"), [("step:a", "x = 1"), ("step:b", "print(x)\nprint(y)")])
    refused = cli("notebook", "run", "book.ipynb")
    assert refused.returncode == 110
    assert "cell 2, line 1: step 'b' reads 'x'" in refused.stderr
    assert "hint: tag it prev:a" in refused.stderr
    assert "cell 2, line 2: 'y' is defined nowhere\n  hint: " in refused.stderr  # all at once
    assert not Path("runs").exists()
    write_book(Path("book.ipynb"), [("step:a", "x = 1"), ("step:b", "print(x)")])
    assert cli("notebook", "tag", "book.ipynb", "2", "prev:a").stdout == "cell 2: step:b prev:a\n"
    assert "step:b prev:a" in cli("notebook", "show", "book.ipynb").stdout
    assert "x from a" in cli("notebook", "graph", "book.ipynb").stdout
    assert cli("notebook", "graph", "book.ipynb", "--as", "mermaid").stdout.startswith("flowchart LR")
    assert cli("notebook", "run", "book.ipynb", "--on", "k8s").returncode != 0
    assert cli("notebook", "run", "book.ipynb", "--param", "a=1").returncode == 110
    assert cli("notebook", "run", "nowhere.ipynb").returncode == 110
    assert "is not a program" in cli("notebook", "run", "book.ipynb", "--python", "gone").stderr
    Path("train.py").write_text("print('hi')")
    assert "`echelon run train.py` runs a script" in cli("notebook", "run", "train.py").stderr
    gone = cli("notebook", "run", "book.ipynb", "--requirements", "gone.txt")
    assert gone.returncode == 110
    assert "requirements: 'gone.txt' is not there\n  hint: " in gone.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_the_steps_that_run(times: int, home: Path) -> None:
    """The second one only ends the wait."""
    cells = [
        ("step:a", "import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(600)"),
        ("step:b prev:a", "1"),
    ]
    write_book(Path("book.ipynb"), cells)
    command = [sys.executable, "-m", "echelon.cli.main", "notebook", "run", "book.ipynb"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    drain = threading.Thread(target=lambda: said.append(process.communicate()[1]), daemon=True)
    drain.start()
    wait_until(Path("runs", "book-1", "work", "here").exists, "the step to run")
    process.send_signal(signal.SIGINT)
    if times == 2:
        wait_until(lambda: [*state_home().glob("**/book-1-a/stop.json")], "the order to stop")
        process.send_signal(signal.SIGINT)
    drain.join()
    assert process.returncode == 130, said
    assert "echelon/" not in said[0]  # the step was interrupted, as a script is, and nothing else
    assert "`echelon resume book-1` continues" in said[0]
    states = {name: step["state"] for name, step in record_of("book-1")["steps"].items()}
    assert states == {"a": "stopped", "b": "not-reached"}
    wait_until(lambda: echelon.attach("book-1-a").status().state == "stopped", "the step to end")


def test_of_a_distributed_step_worker_0_hands_variables_and_files_on(cli: Call) -> None:
    """Files of worker 1 do not take the place of worker 0's; a second distributed step works the same."""
    train = "rank = int(os.environ['RANK'])\npathlib.Path('model.txt').write_text(f'{step} of rank {rank}')"
    cells = [
        ("imports", "import os, pathlib\nstep = os.environ['ECHELON_STEP']"),
        ("step:train distribute workers:2", train),
        ("step:more prev:train distribute workers:2", f"before = rank\n{train}"),
        ("step:look prev:more", "result = (rank, before, pathlib.Path('model.txt').read_text())"),
        ("pipeline-metrics", "result"),
    ]
    write_book(Path("dist.ipynb"), cells)
    done = cli("notebook", "run", "dist.ipynb")
    assert done.returncode == 0, done.stderr
    assert "result: (0, 0, 'more of rank 0')" in done.stdout
    apart = Path("runs/dist-1/steps/more/workers/rank-1/model.txt")
    assert apart.read_text() == "more of rank 1"


def test_a_python_is_looked_for_from_the_commands_folder(cli: Call) -> None:
    """Steps work in another one."""
    write_book(Path("book.ipynb"), [("step:a", "import sys\nprint('ran by', sys.executable)")])
    Path("env/bin").mkdir(parents=True)
    Path("env/bin/python").write_text(f'#!/bin/sh\nSEEN=1 exec {sys.executable} "$@"\n')
    Path("env/bin/python").chmod(0o755)
    done = cli("notebook", "run", "book.ipynb", "--python", "env/bin/python")
    assert done.returncode == 0, done.stderr
    assert "ran by" in done.stdout


def test_steps_have_python_of_their_own(cli: Call) -> None:
    """A step's process needs nothing of echelon: its Python may lack it."""
    from tests.conftest import need_python

    python = need_python("3.8")
    cells = [
        ("step:a", "import sys\nclass P:\n    v = sys.version_info[:2]\np = P()\ns = {1, 2}"),
        ("step:b prev:a", "print(p.v, isinstance(p, P), s)"),
    ]
    write_book(Path("old.ipynb"), cells)
    done = cli("notebook", "run", "old.ipynb", "--python", python)
    assert done.returncode == 0, done.stderr
    assert "[b] (3, 8) True {1, 2}" in done.stdout


def test_a_step_may_start_processes_of_its_own(cli: Call) -> None:
    text = """
import math, multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.map(math.sqrt, [4.0])
def own(x):
    return x + 1
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(spawned, pool.map(own, [1]))
"""
    write_book(Path("pool.ipynb"), [("step:a", text)])
    done = cli("notebook", "run", "pool.ipynb")
    assert done.returncode == 0, done.stderr
    assert "[a] [2.0] [2]" in done.stdout


def test_a_step_that_fails_once_is_started_again(cli: Call) -> None:
    cells = [
        ("step:a", "import os\nassert os.environ['ECHELON_RESTART'] == '1'"),
        ("step:b prev:a", "print(os.environ['ECHELON_STEP'])"),
    ]  # fmt: skip
    write_book(Path("again.ipynb"), cells)
    done = cli("notebook", "run", "again.ipynb", "--restarts", "1")
    assert done.returncode == 0, done.stderr
    assert "[b] b" in done.stdout
    outputs = [json.loads(line) for line in Path("runs/again-1/steps/a/cells.jsonl").read_text().splitlines()]
    assert [each["cell"] for each in outputs] == [1]  # the first start's are not kept beside them
    assert not Path("runs/again-1/steps/a/failure.json").exists()


def test_a_folder_has_the_next_number_that_no_run_has(home: Path) -> None:
    from echelon.notebook.kept.folder import make_folder

    assert make_folder(Path("runs"), "book", []).name == "book-1"
    assert make_folder(Path("runs"), "book", ["book-7-train", "bookish-9"]).name == "book-8"


def test_what_lies_beside_and_above_the_notebook_is_found_and_not_written_over(tmp_path: Path) -> None:
    from echelon.notebook.kept.folder import link_project, make_folder

    project = tmp_path / "project" / "notebooks"
    (project / "runs").mkdir(parents=True)
    (project / "table.csv").write_text("a")
    (project.parent / "data").mkdir()
    (project.parent / "values").mkdir()  # a name that the pipeline run has itself
    folder = make_folder(tmp_path / "runs", "book", [])
    (folder.work / "made").touch()
    for _ in range(2):
        link_project(folder, project, above=True)
    assert sorted(each.name for each in folder.work.iterdir()) == ["made", "table.csv"]
    assert (folder.work / "../data").resolve() == project.parent / "data"
    assert folder.values.resolve() == folder.values


@pytest.mark.slow
def test_from_goes_on_in_a_run_of_the_same_notebook(cli: Call) -> None:
    """Two notebooks may have one name, by --name or by their folders."""
    for number in ("01", "02"):
        cells = [("step:a", f"x = 'of {number}'"), ("step:b prev:a", "print('x is', x)")]
        write_book(Path(f"{number}_model.ipynb"), cells)
        ran = cli("notebook", "run", f"{number}_model.ipynb", "--name", "model")
        assert ran.returncode == 0, ran.stderr
    going_on = cli("notebook", "run", "01_model.ipynb", "--name", "model", "--from", "b")
    assert going_on.returncode == 0, going_on.stderr
    assert "x is of 01" in going_on.stdout
    write_book(Path("other.ipynb"), [("step:a", "x = 1"), ("step:b prev:a", "print(x)")])
    refused = cli("notebook", "run", "other.ipynb", "--name", "model", "--from", "b")
    assert refused.returncode == 111
    assert "no run of other.ipynb named 'model'" in refused.stderr
    assert "model-2 is of" in refused.stderr
    Path("kept").mkdir()
    Path("02_model.ipynb").rename("kept/02_model.ipynb")
    moved = cli("notebook", "run", "kept/02_model.ipynb", "--name", "model", "--from", "b")
    assert moved.returncode == 0, moved.stderr
    assert "x is of 02" in moved.stdout


@pytest.mark.slow
def test_from_goes_on_with_the_same_parameters_whatever_their_type(cli: Call) -> None:
    """JSON, in which the run is recorded, has neither tuples nor sets nor bytes."""
    cells = [
        ("pipeline-parameters", "pair = (1, 2)\nraw = b''\nodd = 1j\nany = None\ntext = ''"),
        ("step:a", "told = [pair, raw, odd, any, text]"),
        (
            "step:b prev:a",
            "print('told', told, pair, raw, odd, any, text)\nprint(told == [pair, raw, odd, any, text])",
        ),
    ]
    write_book(Path("book.ipynb"), cells)
    values = {"pair": "(3, 4)", "raw": "b'x'", "odd": "2j", "any": "'5'", "text": "\"'q'\""}
    flags = [word for name, text in values.items() for word in ("--param", f"{name}={text}")]
    first = cli("notebook", "run", "book.ipynb", *flags)
    assert first.returncode == 0, first.stderr
    again = cli("notebook", "run", "book.ipynb", "--from", "b")
    assert again.returncode == 0, again.stderr
    assert "(3, 4) b'x' 2j 5 'q'" in again.stdout
    assert "True" in again.stdout
    assert record_of("book-1")["parameters"]["pair"] == [3, 4]


def test_numbers_in_front_of_a_notebooks_name_are_kept(cli: Call) -> None:
    write_book(Path("01_model.ipynb"), [("step:a", "x = 1")])
    assert "nb-01-model-1" in cli("notebook", "run", "01_model.ipynb", "--dry-run").stdout


@pytest.mark.slow
def test_a_cached_step_is_one_that_nothing_has_changed_for(cli: Call) -> None:
    cells = [
        ("imports", "import pathlib\nfrom beside import factor"),
        ("pipeline-parameters", "n: int = 3\nlr = 0.1\nunused = 1"),
        ("step:load", "data = list(range(n))\npathlib.Path('data.txt').write_text(str(n))"),
        ("step:train prev:load", "total = lr * sum(data) * factor"),
        ("step:read prev:load", "print('read', pathlib.Path('data.txt').read_text())"),
    ]
    write_book(Path("book.ipynb"), cells)
    Path("beside.py").write_text("factor = 1\n")

    def states(*words: str) -> dict[str, str]:
        ran = cli("notebook", "run", "book.ipynb", "--cache", "-o", "json", *words)
        assert ran.returncode == 0, ran.stderr
        return {name: step["state"] for name, step in json.loads(ran.stdout)["steps"].items()}

    assert set(states().values()) == {"succeeded"}
    again = cli("notebook", "run", "book.ipynb", "--cache", "--param", "unused=2")
    assert again.stderr.count("cached") == 3
    assert "from book-1" in again.stderr
    assert states("--param", "lr=0.2") == {"load": "cached", "train": "succeeded", "read": "cached"}
    # Another number makes another file, of which `read` has no variable.
    assert set(states("--param", "n=4").values()) == {"succeeded"}
    assert set(states("--param", "n=4").values()) == {"cached"}
    Path("beside.py").write_text("factor = 2000\n")
    assert set(states("--param", "n=4").values()) == {"succeeded"}


@pytest.mark.slow
def test_gpus_that_there_never_are_are_refused_before_the_first_step(cli: Call) -> None:
    write_book(Path("book.ipynb"), [("step:a", "print('ran a')"), ("step:b prev:a gpus:4096", "print(1)")])
    refused = cli("notebook", "run", "book.ipynb")
    assert refused.returncode == 113
    assert "step b: " in refused.stderr
    assert "gpus:N" in refused.stderr
    assert "ran a" not in refused.stdout
    assert not Path("runs").exists()
    assert "--no-gpus" in refused.stderr
    tried = cli("notebook", "run", "book.ipynb", "--no-gpus")
    assert tried.returncode == 0, tried.stderr
    limits = [("step:a limit:nvidia.com/gpu:4096 limit:amd.com/gpu:1 limit:cpu:1", "print('ran a')")]
    write_book(Path("other.ipynb"), limits)
    assert cli("notebook", "run", "other.ipynb", "--no-gpus").returncode == 0
