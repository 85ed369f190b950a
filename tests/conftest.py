"""Fixtures that every test may use: a state folder of its own, the command line as a real process, and
nothing left behind.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from testbed.patience import FACTOR, pause_after

from echelon.engines.local.processes import MARK
from echelon.errors import EchelonError
from tests import leftovers, properties

pytest_plugins = ["testbed.fixtures", "tests.gate", "tests.summary"]
QUIET = 60.0  # seconds, on a quiet machine
PATIENCE = QUIET * FACTOR  # for every wait that does not go through `wait_until`

properties.load_profile()
leftovers.mark_this_run()

FRAMEWORKS = {"torch", "tensorflow"}
NEWEST_FIRST = ("3.14", "3.13", "3.12", "3.11")

# A shell's background jobs ignore Ctrl-C, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """To import a framework takes seconds, for each of the processes that collect: tests do it themselves."""
    before = sys.modules.keys() & FRAMEWORKS
    report = yield
    if found := sys.modules.keys() & FRAMEWORKS - before:
        report.outcome = "failed"
        report.longrepr = f"it imports {', '.join(found)} when it is collected; import it inside the test"
    return report


@pytest.fixture(autouse=True)
def no_tensorflow_in_this_process() -> Iterator[None]:
    """It and Triton, which PyTorch's optimizers import, end the process that imports both."""
    yield
    assert "tensorflow" not in sys.modules, "TensorFlow must be imported in another process than the tests'"


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes to the developer's own state folder."""
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path_factory.getbasetemp() / f"state-{uuid.uuid4().hex}"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder and a working folder of the test's own; its runs are ended, and no process of theirs may
    be left.
    """
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("ECHELON_HOME", str(state))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("VIRTUAL_ENV", "ECHELON_ON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))  # a developer's own must not leak in
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.chdir(work)
    yield state
    if not state.exists():  # no run was made; to go through all processes takes as long as many a test
        return
    end_runs(state)
    wait_until(lambda: not processes_of(state), "every process of the test's runs to end")


@pytest.fixture
def horovod(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Horovod in the environment of the ranks, compiled if it is not in the cache; the folder that has it."""
    from testbed.horovod import folder, missing

    if reason := missing():
        pytest.skip(reason)
    found = folder()
    monkeypatch.setenv("PYTHONPATH", str(found))
    # A rank may start long after another on a busy machine; Horovod waits for 30 seconds.
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", str(int(5 * PATIENCE)))
    return found


def end_runs(state: Path) -> None:
    from echelon.engines.local.engine import LocalEngine
    from echelon.handle import Run
    from echelon.model.run import RunRef
    from echelon.model.status import FINAL

    engine = LocalEngine(state)
    for summary in engine.runs():
        if summary.state not in FINAL:
            run = Run(RunRef(engine="local", name=summary.name), engine)
            try:
                run.stop(now=True)
                run.wait(PATIENCE)
            except EchelonError:
                continue


def processes_of(state: Path) -> list[int]:
    """Every process that carries the mark of a run of this state folder."""
    mark = f"{MARK}={state}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
            state_letter = (entry / "stat").read_bytes().rpartition(b") ")[2][:1]
        except OSError:
            continue
        if state_letter != b"Z" and any(word.startswith(mark) for word in environment.split(b"\0")):
            found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], object], what: str, patience: float = QUIET) -> None:
    """Wait until something holds; what takes too long is named. The patience is scaled here."""
    patience *= FACTOR
    deadline = time.monotonic() + patience
    while True:
        began = time.monotonic()
        if condition():
            return
        if time.monotonic() > deadline:
            pytest.fail(f"waited {patience:g} s in vain for {what}")
        time.sleep(pause_after(time.monotonic() - began))


@pytest.fixture
def cli(home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call `echelon` as a user does: a process of its own."""

    def call(*words: str, patience: float = QUIET, **more: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "echelon.cli.main", *words],
            capture_output=True,
            text=True,
            timeout=patience * FACTOR,
            check=False,
            **more,  # type: ignore[call-overload]
        )

    return call


def find_python(version: str) -> str | None:
    """A Python of that version that really runs: from the PATH, or among those that pyenv keeps."""
    pyenv = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    kept = glob.glob(f"{pyenv}/versions/{version}.*/bin/python")  # noqa: PTH207 - unreadable folders are empty
    candidates = [shutil.which(f"python{version}"), *sorted(kept)]
    for python in filter(None, candidates):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


def need_python(version: str) -> str:
    """The same, for a test that is skipped without it; `newest` is the newest one to be found."""
    versions = NEWEST_FIRST if version == "newest" else (version,)
    found = next(filter(None, map(find_python, versions)), None)
    return found or pytest.skip(f"needs Python {versions[-1]}")
