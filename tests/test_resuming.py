"""A run that failed, was stopped or lost starts again in its results; that may be cut off anywhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import echelon
from echelon.engines import durable
from echelon.engines.local.engine import LocalEngine
from echelon.errors import StateTrouble
from echelon.handle import Run
from echelon.model.run import RunRef
from tests.conftest import PATIENCE, wait_until

# Fails until its checkpoint says that it was started often enough.
LEARNS = """
import os, pathlib, sys
checkpoint = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "checkpoint"
steps = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("restart", os.environ["ECHELON_RESTART"], "from step", steps)
checkpoint.write_text(str(steps + 1))
sys.exit(0 if steps >= int(sys.argv[1]) else 5)
"""


def lines(run: echelon.Run) -> list[str]:
    return [line.text for line in run.logs()]


def test_the_same_job_goes_on_in_the_same_results(home: Path) -> None:
    Path("train.py").write_text(LEARNS)
    run = echelon.run("train.py", args=["2"], name="fm")
    assert run.wait(PATIENCE).exit_code == 5
    run.resume()
    assert run.wait(PATIENCE).exit_code == 5
    assert lines(run) == ["restart 0 from step 0", "restart 1 from step 1"]
    assert echelon.attach("fm").resume().wait(PATIENCE).state == "succeeded"
    assert lines(run) == [f"restart {number} from step {number}" for number in range(3)]
    assert [line.text for line in run.logs(tail=2)] == lines(run)[1:]
    assert [line.text for line in run.logs(follow=True)] == lines(run)
    assert [start.why for start in run.later_starts()] == [
        "resumed; before that it had ended: failed: rank 0 exited with code 5"
    ] * 2
    assert Path("runs/fm/logs/rank-0.log").read_text().count("restart") == 3  # of all starts
    with pytest.raises(StateTrouble, match="has succeeded"):
        run.resume()


class Sending(LocalEngine):
    """An engine whose runs are sent their code by the command that follows them."""

    class delivery:  # noqa: N801 - as an engine names it
        @staticmethod
        def is_due(_ref: RunRef) -> bool:
            return True

        @staticmethod
        def has_code(_ref: RunRef) -> bool:
            return True

        @staticmethod
        def deliver(_ref: RunRef, _watch: object) -> None:
            Path("delivered").touch()


def test_code_that_a_command_sends_is_sent_before_it_leaves(home: Path) -> None:
    Path("train.py").write_text(LEARNS)
    ref = RunRef(engine="local", name="fm")
    echelon.run("train.py", args=["1"], name="fm").wait(PATIENCE)
    run = Run(ref, Sending()).resume()
    assert Path("delivered").exists()
    assert run.wait(PATIENCE).state == "succeeded"


def test_restarts_of_all_starts_are_counted(home: Path) -> None:
    Path("train.py").write_text(LEARNS)
    run = echelon.run("train.py", args=["3"], name="fm", restarts=1)
    assert run.wait(PATIENCE).state == "failed"
    assert run.resume().wait(PATIENCE).state == "succeeded"
    assert lines(run) == [f"restart {number} from step {number}" for number in range(4)]
    assert [start.why.split(":")[0] for start in run.later_starts()] == [
        "restart 1",
        "resumed; before that it had ended",
        "restart 1",
    ]
    assert run.status().restarts == 1


def test_from_another_folder_and_in_the_foreground(cli: Any) -> None:
    Path("train.py").write_text(LEARNS)
    assert cli("run", "--name", "fm", "train.py", "1").returncode == 5
    Path("elsewhere").mkdir()
    done = cli("resume", "fm", cwd="elsewhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "restart 1 from step 1\n"
    assert Path("runs/fm/checkpoint").read_text() == "2"
    told = cli("events", "fm")
    assert "was resumed: this is what happened since" in told.stderr
    assert told.stdout.count("recorded") == 1
    assert Path("runs/fm/logs/rank-0.log").read_text().count("restart") == 2
    again = cli("resume")
    assert "run fm, the newest of this folder" in again.stderr
    assert (again.returncode, "has succeeded" in again.stderr) == (115, True)
    assert "nothing to resume" in again.stderr


MEASURES = """
import os, sys
first = 100 * int(os.environ["ECHELON_RESTART"])
for step in range(first, first + 100, 10):
    print(f"step={step} loss={1 / (1 + step)}")
sys.exit(0 if first else 5)
"""


def test_curves_and_logs_are_of_all_starts_and_restarts_are_marked(cli: Any) -> None:
    Path("train.py").write_text(MEASURES)
    assert cli("run", "--name", "fm", "train.py").returncode == 5
    resumed = cli("resume", "fm")
    assert (resumed.returncode, len(resumed.stdout.splitlines())) == (0, 10)  # what this start writes
    logs = cli("logs", "fm")
    assert [line.split()[0] for line in logs.stdout.splitlines()] == [
        f"step={step}" for step in range(0, 200, 10)
    ]
    assert "echelon: resumed; before that it had ended: failed: rank 0 exited with code 5" in logs.stderr
    assert len(cli("logs", "fm", "-o", "json").stdout.splitlines()) == 20
    values = [json.loads(line) for line in cli("metrics", "fm", "-o", "json").stdout.splitlines()]
    assert [each["step"] for each in values] == list(range(0, 200, 10))
    drawn = cli("metrics", "fm", "--plot")
    (ruler,) = [line for line in drawn.stdout.splitlines() if "+---" in line]
    assert ruler.count("^") == 1
    assert abs(ruler.index("^") / len(ruler) - 0.5) < 0.15
    assert "the run was restarted or resumed there" in drawn.stderr


def test_a_single_rank_reads_what_is_typed(cli: Any) -> None:
    Path("train.py").write_text("import sys; print(sys.stdin.readline().strip()); sys.exit(5)")
    assert cli("run", "--name", "fm", "train.py", input="first\n").returncode == 5
    assert cli("resume", "fm", input="second\n").stdout == "second\n"
    assert cli("resume", "-d", "fm", input="third\n").stdout == "fm\n"
    assert cli("wait", "fm").returncode == 5
    assert cli("logs", "fm").stdout == "first\nsecond\n\n"  # nothing can be typed the third time


def test_a_run_that_goes_on_is_refused_and_a_stopped_one_goes_on(home: Path) -> None:
    Path("train.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    run = echelon.run("train.py", name="fm")
    wait_until(lambda: lines(run), what="its first line")
    with pytest.raises(StateTrouble, match="it has not ended") as refused:
        run.resume()
    assert "logs -f fm" in refused.value.hint
    run.stop(now=True)
    Path("train.py").write_text("print('again')")
    assert run.resume().wait(PATIENCE).state == "succeeded"
    assert lines(run) == ["up", "again"]


def test_a_lost_run_goes_on(home: Path) -> None:
    Path("train.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    run = echelon.run("train.py", name="fm")
    wait_until(lambda: lines(run), what="its first line")
    state = json.loads((home / "runs/fm/supervisor.json").read_text())
    os.kill(state["pid"], signal.SIGKILL)
    assert run.wait(PATIENCE).state == "lost"
    Path("train.py").write_text("print('again')")
    assert run.resume().wait(PATIENCE).state == "succeeded"


def test_a_function_and_a_snapshot_are_what_they_were(home: Path) -> None:
    Path("train.py").write_text(LEARNS)
    run = echelon.run("train.py", args=["1"], name="fm", snapshot=True)
    assert run.wait(PATIENCE).exit_code == 5
    Path("train.py").write_text("print('edited meanwhile')")
    assert run.resume().wait(PATIENCE).state == "succeeded"
    assert lines(run) == ["restart 0 from step 0", "restart 1 from step 1"]


class Cut(BaseException):
    """The process is killed here."""


@pytest.mark.parametrize("step", range(1, 13))
def test_a_resumption_may_be_cut_off_anywhere(home: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    Path("train.py").write_text(LEARNS)
    run = echelon.run("train.py", args=["1"], name="fm", snapshot=True)
    assert run.wait(PATIENCE).exit_code == 5
    done = 0

    def cutting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                raise Cut
            return real(*words, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace_file", cutting(durable.replace_file))
        patch.setattr(Path, "unlink", cutting(Path.unlink))
        patch.setattr(Path, "rename", cutting(Path.rename))
        patch.setattr(os, "link", cutting(os.link))
        patch.setattr(shutil, "rmtree", cutting(shutil.rmtree))
        try:
            run.resume()
        except Cut:
            pass
        else:
            pytest.fail(f"there are only {done} steps")
    assert run.status().state in ("failed", "recorded")
    assert run.resume().wait(PATIENCE).state == "succeeded"
    assert [line.partition("from ")[2] for line in lines(run)] == ["step 0", "step 1"]
    assert len(run.later_starts()) == 1


def test_in_memory_too() -> None:
    from echelon.engines.memory.engine import MemoryEngine
    from echelon.model.job import Job

    engine = MemoryEngine()
    ref = engine.record(Job(name="fm", script="train.py", framework="plain"), None)
    engine.stop(ref)
    run = Run(ref, engine)
    assert run.status().state == "stopped"
    run.resume()
    assert [event.kind for event in engine.earlier_events(ref)] == ["recorded", "finished"]
    assert run.job().earlier == 1
    assert run.status().state != "stopped"


def test_after_a_power_cut_the_run_has_ended_as_before(home: Path, tmp_path: Path) -> None:
    """Of files that were deleted since the folder was last forced to disk, any may be there again."""
    Path("train.py").write_text(LEARNS)
    assert echelon.run("train.py", args=["1"], name="fm").wait(PATIENCE).exit_code == 5
    unsure = ("plan.json", "supervisor.json", "supervisor.log", "worker-0.0.log")
    for number in range(2 ** len(unsure)):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(home, copy)
        gone = [name for at, name in enumerate(unsure) if number >> at & 1]
        for name in ("task.json", *gone):
            (copy / "runs/fm" / name).unlink()
        engine = LocalEngine(copy)
        status = Run(RunRef(engine="local", name="fm"), engine).status()
        assert (status.state, status.exit_code) == ("failed", 5), gone
        engine.reopen(RunRef(engine="local", name="fm"), engine.store.read("fm").job)
        assert Run(RunRef(engine="local", name="fm"), engine).status().state == "recorded"
