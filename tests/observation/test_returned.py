"""What a function returned comes back to the caller, and a failure does as an error."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE
from tests.notebooks import run_cells

import echelon
from echelon import RunFailed
from echelon.errors import CannotShip, InvalidJob, ResultsIncomplete, RunTimedOut, StateTrouble


@pytest.fixture
def jobs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Functions of a file of the working folder."""
    import importlib
    import sys

    name = "returning_jobs"
    Path(f"{name}.py").write_text(
        textwrap.dedent(
            """
            import dataclasses, io, os, sys
            import numpy as np

            def metrics(scale):
                rank = int(os.environ["ECHELON_RANK"])
                return {"rank": rank, "losses": (np.arange(3) * scale, np.float32(0.5))}

            def model():
                return {"model": lambda: 0}

            @dataclasses.dataclass
            class Result:
                loss: float
                tags: set

            def result():
                return Result(0.5, {"a", "b"})

            def tags():
                return {"a", "b"}

            def stream() -> io.StringIO:
                return io.StringIO()

            def annotated() -> Result | None:
                return result()

            def nothing():
                pass

            def leaves():
                sys.exit(0)

            def fails():
                print("about to fail")
                raise ValueError("no <b>data</b>")

            def waits():
                import time
                time.sleep(600)
            """
        )
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    yield importlib.import_module(name)
    del sys.modules[name]


def test_what_each_rank_returned(jobs: Any) -> None:
    run = echelon.run(jobs.metrics, args=[2], workers=2)
    found = run.result(timeout=PATIENCE)
    assert found["rank"] == 0
    assert found["losses"][0].tolist() == [0, 2, 4]
    assert [each["rank"] for each in run.results()] == [0, 1]
    assert run.result(1)["rank"] == 1
    assert run.exception() is None
    with pytest.raises(InvalidJob, match="is not a rank"):
        run.result(2)
    assert echelon.attach(str(run)).result()["rank"] == 0
    assert sorted(path.name for path in Path("runs", run.name, "returned").iterdir()) == ["rank-0", "rank-1"]


def test_a_function_that_returns_nothing(jobs: Any) -> None:
    assert echelon.run(jobs.nothing, workers=2).results(timeout=PATIENCE) == [None, None]


def test_what_is_no_data_is_refused_and_the_run_succeeds_all_the_same(jobs: Any) -> None:
    run = echelon.run(jobs.model)
    assert run.wait(PATIENCE).state == "succeeded"
    with pytest.raises(CannotShip, match=r"value\['model'\], a function"):
        run.result()
    (line,) = run.logs()
    assert line.stream == "stderr"
    assert "model returned value['model'], a function" in line.text


def test_what_a_pickle_holds_comes_back_on_the_machine_that_wrote_it(jobs: Any) -> None:
    run = echelon.run(jobs.result, workers=2)
    assert run.results(timeout=PATIENCE) == [jobs.Result(0.5, {"a", "b"})] * 2
    assert list(run.logs()) == []
    assert echelon.attach(str(run)).result(1) == jobs.Result(0.5, {"a", "b"})
    assert echelon.run(jobs.tags).result(timeout=PATIENCE) == {"a", "b"}


def test_a_pickle_that_somebody_else_put_there_is_not_read(jobs: Any, tmp_path: Path) -> None:
    run = echelon.run(jobs.result)
    run.wait(PATIENCE, check=True)
    folder, trace = Path("runs", run.name, "returned", "rank-0"), tmp_path / "trace"
    forged = b"cposix\nsystem\n(Vtouch " + str(trace).encode() + b"\ntR."
    (folder / "value.pkl").write_bytes(forged)
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    digest = hashlib.sha256(forged).hexdigest()
    sums = [f"{digest}  value.pkl" if line.endswith("value.pkl") else line for line in sums]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    with pytest.raises(StateTrouble, match="is not the one that the rank wrote"):
        run.result()
    assert not trace.exists()


def test_what_can_never_come_back_is_refused_before_the_start(jobs: Any) -> None:
    with pytest.raises(CannotShip, match="'stream' says that it returns a StringIO"):
        echelon.run(jobs.stream)
    assert echelon.runs() == []
    assert echelon.run(jobs.annotated).result(timeout=PATIENCE).loss == 0.5


def test_a_rank_that_left_has_returned_nothing(jobs: Any) -> None:
    run = echelon.run(jobs.leaves)
    with pytest.raises(ResultsIncomplete, match="rank 0 of run"):
        run.result(timeout=PATIENCE)


def test_a_script_returns_nothing(home: Path) -> None:
    Path("train.py").write_text("")
    with pytest.raises(InvalidJob, match="did not run a function"):
        echelon.run("train.py").result(timeout=PATIENCE)


def test_damage_is_told(jobs: Any) -> None:
    run = echelon.run(jobs.metrics, args=[2])
    run.wait(PATIENCE, check=True)
    Path("runs", run.name, "returned", "rank-0", "1.npy").write_bytes(b"other")
    with pytest.raises(StateTrouble, match=r"1\.npy has changed since it was written"):
        run.result()


def test_a_failure_is_an_error_with_the_root_cause(jobs: Any) -> None:
    run = echelon.run(jobs.fails)
    with pytest.raises(RunFailed, match="ValueError: no <b>data</b>") as failed:
        run.wait(PATIENCE, check=True)
    assert failed.value.exit_code == 1
    assert failed.value.status == run.status()
    assert "about to fail" in failed.value.__notes__[0]
    failure = run.exception()
    assert isinstance(failure, echelon.RunFailed)
    assert str(failure) == str(failed.value)
    with pytest.raises(RunFailed):
        run.result()
    with pytest.raises(RunFailed):
        run.results()


def test_a_failure_says_what_helps(home: Path) -> None:
    Path("lacks.py").write_text("import no_such_package")
    with pytest.raises(RunFailed) as failed:
        echelon.run("lacks.py").wait(PATIENCE, check=True)
    assert "--python runs the ranks with another Python" in failed.value.hint
    Path("reads.py").write_text("open('data/a.csv')")
    Path(".gitignore").write_text("data/")
    Path(".echelonignore").touch()
    Path("data").mkdir()
    Path("data/a.csv").touch()
    failure = echelon.run("reads.py", snapshot=True).exception(PATIENCE)
    assert failure is not None
    assert "--include data/ ships it" in failure.__notes__[-1]


def test_a_stopped_run_did_not_succeed(jobs: Any) -> None:
    run = echelon.run(jobs.waits)
    with pytest.raises(RunTimedOut):
        run.result(timeout=0.1)
    run.stop(now=True)
    with pytest.raises(RunFailed, match=f"run '{run.name}' was stopped"):
        run.wait(check=True)


def test_a_status_is_a_table_and_neither_true_nor_false(jobs: Any) -> None:
    run = echelon.run(jobs.fails, workers=2)
    status = run.wait(PATIENCE)
    lines = dict(line.split(maxsplit=1) for line in str(status).splitlines())
    assert lines["run"] == run.name
    assert lines["state"].startswith("failed: ")
    assert repr(status) == str(status)
    with pytest.raises(TypeError, match=r"status\.state == 'succeeded'"):
        bool(status)
    shown = run._repr_html_()
    assert "<table>" in shown
    assert "no &lt;b&gt;data&lt;/b&gt;" in shown
    assert "<b>" not in shown
    assert status.root_cause is not None
    assert f"[{status.root_cause.rank}] about to fail" in [str(line) for line in run.logs()]


def test_a_run_that_is_gone_shows_itself_as_gone(jobs: Any) -> None:
    run = echelon.run(jobs.nothing)
    assert "with 1 rank\n" in str(run.wait(PATIENCE))
    run.remove()
    assert "no run named" in run._repr_html_()


def test_lines_are_shown_on_request(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("import sys; print('hello'); print('trouble', file=sys.stderr)")
    echelon.run("train.py").wait(PATIENCE, show=True)
    assert capsys.readouterr() == ("hello\n", "trouble\n")
    echelon.run("train.py", workers=2).wait(PATIENCE, show=True)
    assert sorted(capsys.readouterr().out.splitlines()) == ["[0] hello", "[1] hello"]
    echelon.run("train.py").wait(PATIENCE)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the kernel's own libraries warn
def test_in_a_notebook_the_cell_shows_it(home: Path) -> None:
    cells = [
        "import echelon\ndef train(n):\n    print('epoch', n)\n    return [n, float(n)]\n",
        "run = echelon.run(train, args=[3], workers=2)\nrun.wait()",
        "run",
        "run.result()",
    ]
    book = run_cells(cells, Path.cwd())
    _, waited, shown, result = [cell.outputs for cell in book.cells]
    text = "".join(each.text for each in waited if each.output_type == "stream")
    assert sorted(text.splitlines()) == ["[0] epoch 3", "[1] epoch 3"]
    status = waited[-1].data
    assert "succeeded" in status["text/plain"]
    assert "<table>" in status["text/html"]
    assert "<table>" in shown[0].data["text/html"]
    assert [each.data["text/plain"] for each in result] == ["[3, 3.0]"]  # and no output a second time


def test_why_a_run_waits_is_shown_once_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    from echelon.model.event import Event
    from echelon.observation.live import tell_waiting

    tell_waiting(Event(kind="queued", at=1.0, reason="needs 2 GPUs,\n1 is free"))
    tell_waiting(Event(kind="admitted", at=2.0))
    assert capsys.readouterr().err == "echelon: needs 2 GPUs, 1 is free\n"
