"""The Python face, against the real local engine: `echelon.run`, `attach`, `runs`, and the handle."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import echelon
from echelon.errors import (
    CannotShip,
    EchelonError,
    InvalidJob,
    RunExists,
    RunTimedOut,
    StateTrouble,
    Unavailable,
    UnknownRun,
    Unplaceable,
)
from echelon.handle import Run
from tests.conftest import PATIENCE, wait_until
from tests.notebooks import run_cells

STAY = """
    import os, pathlib, time
    (pathlib.Path(os.environ["ECHELON_OUTPUT"]) / f"ready-{os.environ['ECHELON_WORKER']}").touch()
    print("ready", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    print("done")
"""


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(textwrap.dedent(text))
    return path


def test_a_script(home: Path) -> None:
    write("train.py", "import os, sys; print(os.environ['ECHELON_WORKER'], *sys.argv[1:])")
    run = echelon.run("train.py", args=["--epochs", 3], workers=2, name="fm")
    assert (run.name, str(run), repr(run)) == ("fm", "local://fm", "<Run local://fm>")
    status = run.wait(PATIENCE)
    assert (status.state, status.exit_code) == ("succeeded", 0)
    assert run.status() == status
    assert sorted(line.text for line in run.logs()) == ["0 --epochs 3", "1 --epochs 3"]
    (line,) = run.logs(rank=1)
    assert (line.text, line.worker, line.rank, line.stream) == ("1 --epochs 3", 1, 1, "stdout")
    assert list(run.logs(worker=0)) == list(run.logs(rank=0))
    assert run.get() == Path.cwd() / "runs" / "fm"
    run.remove()
    with pytest.raises(UnknownRun):
        run.status()
    assert Path("runs/fm/logs/rank-0.log").exists()


def test_a_path_a_module_a_command(home: Path) -> None:
    script = write("train.py", "print('as a script')")
    runs = {
        "as a script\n": echelon.run(script.absolute()),
        "as a module\n": echelon.run(module="train"),
        "as a command\n": echelon.run(command=["echo", "as a", "command"]),
        "as a line\n": echelon.run(command="echo 'as a line'"),
    }
    for said, run in runs.items():
        assert run.wait(PATIENCE).state == "succeeded"
        assert "".join(f"{line.text}\n" for line in run.logs()) == said.replace("module", "script")


@pytest.fixture
def module(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import a file of the working folder."""
    monkeypatch.syspath_prepend(str(Path.cwd()))
    made: list[str] = []

    def load(text: str) -> Any:
        made.append(f"jobs_{os.getpid()}_{len(made)}")
        write(f"{made[-1]}.py", text)
        return importlib.import_module(made[-1])

    yield load
    for name in made:
        del sys.modules[name]


def test_a_function_of_a_file(module: Callable[[str], Any]) -> None:
    jobs = module(
        """
        import os, pathlib

        def helper(text):
            return text.upper()

        def train(name, *, lr):
            rank = os.environ["ECHELON_WORKER"]
            print(helper(name), lr, rank)
            (pathlib.Path(os.environ["ECHELON_OUTPUT"]) / f"model-{rank}.pt").write_text(str(lr))
        """
    )
    run = echelon.run(jobs.train, args=["net"], kwargs={"lr": 1e-3}, workers=2)
    assert run.name.startswith("train-")
    assert run.wait(PATIENCE).state == "succeeded", list(run.logs())
    assert sorted(line.text for line in run.logs()) == ["NET 0.001 0", "NET 0.001 1"]
    assert run.get("model-1.pt").read_text() == "0.001"
    assert run.get("model-0.pt", "there") == Path("there/model-0.pt")


def test_a_function_that_fails_names_its_error(module: Callable[[str], Any]) -> None:
    jobs = module("def train():\n    raise ValueError('no data')\n")
    status = echelon.run(jobs.train, workers=2).wait(PATIENCE)
    assert (status.state, status.exit_code) == ("failed", 1)
    assert status.root_cause is not None
    assert status.root_cause.error == "ValueError: no data"


def test_a_function_of_the_main_program(home: Path) -> None:
    write(
        "main.py",
        f"""
        import echelon

        SCALE = 3

        def helper(x):
            return x * SCALE

        def train(x):
            print("computed", helper(x))

        if __name__ == "__main__":
            run = echelon.run(train, args=[14], name="fm")
            print(run.wait({PATIENCE}).state, [line.text for line in run.logs()])
        """,
    )
    done = subprocess.run(
        [sys.executable, "main.py"], capture_output=True, text=True, check=True, timeout=2 * PATIENCE
    )
    assert done.stdout == "succeeded ['computed 42']\n"
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the kernel's own libraries warn about what is none of our business
def test_a_function_typed_in_a_notebook(home: Path) -> None:
    cells = [
        "import echelon, os\nscale = 3",
        "def helper(x):\n    return x * scale",
        "def train(x):\n    print('computed', helper(x), os.environ['ECHELON_WORKERS'])",
        "run = echelon.run(train, kwargs={'x': 14}, workers=2, name='fm')",
        f"status = run.wait({PATIENCE})\nprint(status.state, [line.text for line in run.logs()])",
    ]
    book = run_cells(cells, Path.cwd())
    printed = "".join(output.text for output in book.cells[-1].outputs if output.output_type == "stream")
    assert printed.endswith("succeeded ['computed 42 2', 'computed 42 2']\n")
    assert echelon.attach("fm").status().state == "succeeded"


def test_attach_and_runs_in_another_process(home: Path) -> None:
    write("stay.py", STAY)
    run = echelon.run("stay.py", workers=2, name="fm")
    code = f"""
import sys, echelon
run = echelon.attach(sys.argv[1])
assert [row.name for row in echelon.runs()] == ["fm"]
for line in run.logs(follow=True):
    if line.text == "ready":
        open("go", "w").close()
print(run.wait({PATIENCE}).state)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(run)],
        capture_output=True,
        text=True,
        check=True,
        timeout=2 * PATIENCE,
    )
    assert done.stdout == "succeeded\n"
    assert echelon.attach("fm").status() == run.status()
    (row,) = echelon.runs()
    assert (row.name, row.state, row.workers, row.command) == ("fm", "succeeded", 2, "stay.py")


def test_waiting_stopping_and_removing(home: Path) -> None:
    write("stay.py", STAY)
    run = echelon.run("stay.py", name="fm")
    with pytest.raises(RunTimedOut, match=r"still (starting|running) after 0\.1 s"):
        run.wait(0.05)
    wait_until(Path("runs/fm/ready-0").exists, "the rank")
    with pytest.raises(StateTrouble, match="has not ended"):
        run.remove()
    with pytest.raises(RunExists, match="a run named 'fm' exists"):
        echelon.run("stay.py", name="fm", results="elsewhere")
    run.stop()
    status = run.wait(PATIENCE)
    assert (status.state, status.exit_code) == ("stopped", 143)
    run.stop()  # again: nothing happens
    run.stop(now=True)
    assert run.status() == status
    run.remove()
    assert echelon.runs() == []


def test_logs_as_they_come(home: Path) -> None:
    write("stay.py", STAY)
    run = echelon.run("stay.py", name="fm")
    lines = run.logs(follow=True)
    assert next(lines).text == "ready"
    Path("go").touch()
    assert [line.text for line in lines] == ["done"]
    assert [line.text for line in run.logs(tail=1)] == ["done"]
    assert [line.text for line in run.logs(tail=1, follow=True)] == ["done"]
    first, second = run.logs()
    assert [line.text for line in run.logs(since=(first.at + second.at) / 2)] == ["done"]


@pytest.mark.parametrize(
    ("what", "more", "kind", "said"),
    [
        ("no.py", {}, InvalidJob, "script: 'no.py' does not exist"),
        (None, {}, InvalidJob, "give one of script, module, command"),
        ("train.py", {"module": "train"}, InvalidJob, "script and module"),
        ("train.py", {"worker": 2}, InvalidJob, "workers"),
        ("train.py", {"workers": 0}, InvalidJob, "workers: 0 is less than 1"),
        ("train.py", {"workers": "two"}, InvalidJob, "two"),
        ("train.py", {"workers": True}, InvalidJob, "workers"),
        ("train.py", {"kwargs": {"lr": 1}}, InvalidJob, "is for a function"),
        ("train.py", {"name": "No Name"}, InvalidJob, "'no-name'"),
        ("train.py", {"framework": "caffe"}, InvalidJob, "caffe"),
        ("train.py", {"timeout": "soon"}, InvalidJob, "soon"),
        ("train.py", {"dry_run": True}, InvalidJob, "echelon run --dry-run"),
        ("train.py", {"cpus": 99999}, Unplaceable, "99999 CPUs asked for"),
        ("train.py", {"on": "k8s"}, Unavailable, "no kubeconfig"),
        ("train.py", {"on": "mars"}, InvalidJob, "mars"),
        (print, {}, CannotShip, "print"),
        (3, {}, InvalidJob, "without calling it"),
        ("train.py", {"args": 3}, InvalidJob, "args: 3 is not a list"),
        (write, {"args": "text"}, InvalidJob, "args: 'text' is one text"),
        (write, {"args": 3}, InvalidJob, "args: 3 is not a list"),
        (write, {"args": {"name": 1}}, InvalidJob, "kwargs={"),
        (write, {"kwargs": [1]}, InvalidJob, "kwargs: [1] is not a dict"),
    ],
)
def test_mistakes(home: Path, what: Any, more: dict[str, Any], kind: type[EchelonError], said: str) -> None:
    write("train.py", "print('hi')")
    with pytest.raises(kind) as caught:
        echelon.run(what, **more)
    assert said in str(caught.value)
    assert caught.value.hint
    assert isinstance(caught.value, echelon.EchelonError)
    assert not (home / "runs").exists()
    assert not Path("runs").exists()


def test_a_run_that_is_not_there(home: Path) -> None:
    with pytest.raises(UnknownRun, match="no run named 'fm'"):
        echelon.attach("fm")
    with pytest.raises(InvalidJob, match="names no engine"):
        echelon.attach("mars://fm")
    with pytest.raises(InvalidJob, match="is not a run's name"):
        echelon.attach("../fm")
    assert echelon.runs() == []


def test_every_flag_is_a_keyword_and_none_means_not_said(home: Path) -> None:
    from dataclasses import fields

    from echelon.model.settings import Settings

    write("train.py", "print('hi')")
    nothing = {each.name: None for each in fields(Settings) if each.name not in ("script", "args")}
    assert echelon.run("train.py", **nothing).wait(PATIENCE).state == "succeeded"


def test_the_public_names(home: Path) -> None:
    assert echelon.__all__ == sorted(echelon.__all__)
    for name in echelon.__all__:
        assert getattr(echelon, name) is getattr(sys.modules["echelon"], name)
        assert name in dir(echelon)
    with pytest.raises(AttributeError, match="nothing"):
        echelon.nothing  # noqa: B018


def test_many_runs_from_many_threads(home: Path) -> None:
    write("train.py", "print('hi')")
    made: list[Run] = []
    threads = [
        threading.Thread(target=lambda n=n: made.append(echelon.run("train.py", name=f"r{n}")))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [run.wait(PATIENCE).state for run in made] == ["succeeded"] * 4
    assert sorted(row.name for row in echelon.runs()) == ["r0", "r1", "r2", "r3"]


def test_stop_returns_when_the_run_has_ended_so_that_it_can_be_removed(home: Path) -> None:
    run = echelon.run(command=["sleep", "600"], workers=2)
    run.stop()
    assert run.status().state == "stopped"
    run.remove()
    assert list(echelon.runs()) == []


def test_arguments_are_words(home: Path) -> None:
    with pytest.raises(EchelonError, match="is one text"):
        echelon.run("train.py", args="--epochs 3")


def test_the_processes_of_ranks_are_told(home: Path) -> None:
    run = echelon.run(command=["sleep", "600"], workers=1, procs=2)
    wait_until(lambda: run.status().state == "running", "the run")
    (worker,) = run.status().workers
    assert sorted(worker.rank_pids) == ["0", "1"]
    for pid in worker.rank_pids.values():
        assert Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    run.stop(now=True)
    assert run.status().workers[0].rank_pids == {}


def test_what_the_user_should_know_is_told_as_by_the_command(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from echelon import api
    from echelon.engines.memory.engine import MemoryEngine
    from echelon.model.engine.traits import Traits
    from echelon.model.job import Job

    class Far(MemoryEngine):
        traits = Traits(place="far away", remote=True, code_limit=2**20)

        def notes(self, job: Job) -> tuple[str, ...]:
            return (f"{job.script} runs in a default image",)

    monkeypatch.setattr(api, "choose_engine", lambda *_, **__: Far())
    write("train.py", "print('hi')")
    write(".env", "TOKEN=hunter2")
    echelon.run("train.py", image="torch", output="pvc:out")
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("echelon: ships 1 file, ")
    assert "echelon: .env looks like a secret: left out; --include .env ships it" in told
    assert "echelon: train.py runs in a default image" in told


def test_where_the_results_of_a_replaced_run_are_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("train.py", "print('hi')")
    for _ in range(2):
        echelon.run("train.py", name="exp", replace=True).wait(PATIENCE)
    assert "exp.1" in capsys.readouterr().err


@pytest.mark.parametrize("value", [3, b"fm", ["fm"], Path("fm")])
def test_what_is_no_text_is_told_as_ours(value: Any, home: Path) -> None:
    calls: list[Callable[[], object]] = [lambda: echelon.attach(value)]
    for name in ("on", "context", "namespace"):
        calls.append(lambda name=name: echelon.attach("fm", **{name: value}))
        calls.append(lambda name=name: echelon.runs(**{name: value}))
    for call in calls:
        with pytest.raises(InvalidJob, match=f"is of the type {type(value).__name__}") as caught:
            call()
        assert caught.value.hint


def test_a_handle_tells_a_wrong_type_as_ours(home: Path) -> None:
    write("train.py", "print('step=1 loss=2')")
    run = echelon.run("train.py")
    run.wait(PATIENCE)
    odd: Any = object()
    calls: dict[str, Callable[[], object]] = {
        "timeout": lambda: run.wait(odd),
        "rank": lambda: run.result(None),  # type: ignore[arg-type]
        "tail": lambda: run.logs(tail=odd),
        "since": lambda: run.logs(since="5m"),  # type: ignore[arg-type]
        "path": lambda: run.get(odd),
        "to": lambda: run.get(to=odd),
        "pattern": lambda: run.metrics(pattern=odd),
    }
    for field, call in calls.items():
        with pytest.raises(InvalidJob) as caught:
            call()
        assert caught.value.field == field
        assert caught.value.hint
    for tail in (-1, 1.5, "3"):
        with pytest.raises(InvalidJob, match="tail: "):
            run.logs(tail=tail)  # type: ignore[arg-type]
    for path in ("a\0b", b"logs"):
        with pytest.raises(InvalidJob, match="path: "):
            run.get(path)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="pattern: 3 is of the type int"):
        run.metrics(pattern=[3])  # type: ignore[list-item]
    assert run.get(Path("logs"), "there") == Path("there/logs")
