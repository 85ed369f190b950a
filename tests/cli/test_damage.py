"""Whatever is found in a run's folder: it is listed, no command fails with a traceback or waits for ever, and
`rm` removes it. Other runs are not disturbed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import STAY, wait_for
from tests.cli.nvidia_smi import StandIn
from tests.conftest import end_runs, processes_of, wait_until

from echelon.cli import main
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder.store import RunStore
from echelon.handle import Run
from echelon.model.run import RunRef

Call = Callable[..., subprocess.CompletedProcess[str]]
STATES = ("queued", "running", "succeeded", "failed")
DECIDING = ("record.json", "plan.json", "final.json", "events.jsonl")
SHORT = 8192  # bytes of a file that is cut at many lengths
NOISE = random.Random(7).randbytes(700)
DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(NOISE),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "nested": lambda path: path.write_bytes(b'{"x":' + b"[" * 100_000),
    "other JSON": lambda path: path.write_bytes(b'{"kind": "note", "at": 1.0}\n'),
    "a list": lambda path: path.write_bytes(b"[]\n"),
    "a folder": lambda path: (path.unlink(), path.mkdir(), (path / "file").touch()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "nowhere": lambda path: (path.unlink(), path.symlink_to("nowhere/at/all")),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of real runs, as they were in each state; their processes have ended, as after a power cut."""
    place = tmp_path_factory.mktemp("kept")
    home, copies = place / "state", place / "copies"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ECHELON_HOME", str(home))
        patch.chdir(place)
        (place / "stay.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
        cpus = ["--cpus", str(os.cpu_count() or 1)]
        assert main.call(["run", "--name", "succeeded", "-n", "2", "--", "echo", "done"]) == 0
        assert main.call(["run", "--name", "failed", "--", "sh", "-c", "echo no; exit 3"]) == 3
        assert main.call(["run", "-d", "--name", "running", *cpus, "stay.py"]) == 0
        assert main.call(["run", "-d", "--name", "queued", *cpus, "stay.py"]) == 0
        engine = LocalEngine(home)
        for state in STATES:
            run = Run(RunRef(engine="local", name=state), engine)
            wait_until(lambda: run.status().state == state, f"a run to be {state}")  # noqa: B023
        wait_until((home / "runs" / "queued" / "supervisor.json").exists, "the queue's supervisor")
        for state in STATES:
            shutil.copytree(home / "runs" / state, copies / state)
        end_runs(home)
    return copies


@pytest.fixture
def state_folder(home: Path, kept: Path) -> Path:
    """A state folder with a healthy run in it."""
    (home / "runs").mkdir(parents=True)
    record = (kept / "succeeded" / "record.json").read_bytes().replace(b'"succeeded"', b'"healthy"')
    shutil.copytree(kept / "succeeded", home / "runs" / "healthy")
    (home / "runs" / "healthy" / "record.json").write_bytes(record)
    return home / "runs"


def rows(call: Call) -> dict[str, dict[str, Any]]:
    listed = call("ps", "-a", "-o", "json")
    assert (listed.returncode, listed.stderr) == (0, "")
    return {row["name"]: row for row in json.loads(listed.stdout)}


def use_it(call: Call, name: str) -> str:
    """Every command on a run: none breaks, and it is gone after `rm`. Returns the state that `ps` lists."""
    seen = rows(call)
    assert seen["healthy"]["state"] == "succeeded"
    state = seen[name]["state"]
    shown = call("status", name)
    assert shown.returncode == 0, shown.stderr
    if state == "damaged":
        assert name in call("ps").stdout  # without -a too
        assert f"`echelon rm {name}`" in shown.stdout
        assert str(Path("runs") / name) in shown.stdout  # the file
    assert call("logs", name).returncode == 0
    waited = call("wait", name, "--timeout", "20s")
    assert waited.returncode == {"succeeded": 0, "failed": 3, "lost": 117, "damaged": 115}[state], (
        waited.stderr
    )
    stopped = call("stop", name)
    assert stopped.returncode == 0, stopped.stderr
    removed = call("rm", name)
    assert (removed.returncode, removed.stdout) == (0, f"{name}\n"), removed.stderr
    assert set(rows(call)) == {"healthy"}
    assert call("status", "healthy").returncode == 0
    return str(state)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("state", STATES)
def test_every_file_of_every_kind_of_run(
    call: Call, state_folder: Path, kept: Path, state: str, how: str
) -> None:
    for number, file in enumerate(sorted(each.name for each in (kept / state).iterdir() if each.is_file())):
        folder = state_folder / state
        shutil.copytree(kept / state, folder)
        DAMAGES[how](folder / file)
        listed = use_it(call, state)
        if file in DECIDING and (file, how) not in MEANS_LESS:
            assert listed == "damaged", f"{file}, {how}"
        assert not any(state_folder.glob(".*")), f"{number}: {file}, {how}"


# A file whose absence says that something has not happened yet, or that any event will do for.
MEANS_LESS = {("final.json", "removed"), ("events.jsonl", "other JSON")}


@pytest.fixture
def without_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of runs are removed, and none of these tests cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def cuts(file: Path, *, every: int | None) -> list[int]:
    size = file.stat().st_size
    step = every if every and size <= SHORT else max(1, size // 12)
    return sorted({*range(0, size, step), max(0, size - 1)})


@pytest.mark.slow
@pytest.mark.usefixtures("without_syncing")
@pytest.mark.parametrize("state", STATES)
def test_files_that_are_cut(call: Call, state_folder: Path, kept: Path, state: str) -> None:
    """The deciding files at every seventh length by the calls that commands make; at some by commands. `make
    soak` has every length.
    """
    engine, folder = LocalEngine(state_folder.parent), state_folder / state
    run = Run(RunRef(engine="local", name=state), engine)
    for file in DECIDING:
        if not (kept / state / file).exists():
            continue
        content = (kept / state / file).read_bytes()
        for number, length in enumerate(cuts(kept / state / file, every=None if state == "queued" else 7)):
            shutil.copytree(kept / state, folder)
            (folder / file).write_bytes(content[:length])
            if number % 16 == 7:
                use_it(call, state)
                continue
            listed = {row.name: row.state for row in engine.runs()}
            assert listed["healthy"] == "succeeded"
            assert run.status().state == listed[state]
            if file != "events.jsonl":
                assert listed[state] == "damaged", f"{file} cut at {length}"
            shutil.rmtree(folder)


@pytest.mark.soak
@pytest.mark.usefixtures("without_syncing")
@pytest.mark.parametrize("state", STATES)
def test_every_file_that_is_cut(call: Call, state_folder: Path, kept: Path, state: str) -> None:
    folder = state_folder / state
    for file in sorted(each.name for each in (kept / state).iterdir() if each.is_file()):
        content = (kept / state / file).read_bytes()
        for length in cuts(kept / state / file, every=1):
            shutil.copytree(kept / state, folder)
            (folder / file).write_bytes(content[:length])
            use_it(call, state)


@pytest.fixture
def live(stay: str, home: Path) -> Callable[[], Path]:
    """A run whose processes go on, beside a healthy one."""

    def start() -> Path:
        assert main.call(["run", "-d", "--name", "fm", "--reuse-results", stay]) == 0
        wait_for("runs/fm/pid-0")
        Path("runs/fm/pid-0").unlink()
        return home / "runs" / "fm"

    return start


def damage_live(call: Call, folder: Path, file: str, how: str) -> None:
    DAMAGES[how](folder / file)
    state = rows(call)["fm"]["state"]
    assert call("status", "fm").returncode == 0
    assert call("logs", "fm").returncode == 0
    if state == "damaged":
        assert call("wait", "fm", "--timeout", "1s").returncode == 115
        refused = call("rm", "fm")
        assert (refused.returncode, refused.stdout) == (115, ""), file
        assert "still runs" in refused.stderr
        assert "`echelon stop fm`" in refused.stderr
        assert processes_of(folder.parent.parent), file
    stopped = call("stop", "--now", "fm")
    assert stopped.returncode == 0, stopped.stderr
    assert state != "damaged" or not processes_of(folder.parent.parent), file
    removed = call("rm", "fm")
    assert removed.returncode == 0, removed.stderr
    assert set(rows(call)) == {"healthy"}
    wait_until(lambda: not processes_of(folder.parent.parent), "every process of the run to end")


LIVE_FILES = (
    "record.json",
    "plan.json",
    "events.jsonl",
    "task.json",
    "secret",
    "supervisor.json",
    "supervisor.lock",
    "supervisor.log",
    "takers.lock",
    "worker-0.0.log",
)


@pytest.mark.slow
def test_a_run_that_goes_on(call: Call, state_folder: Path, live: Callable[[], Path]) -> None:
    for number, file in enumerate(LIVE_FILES):
        damage_live(call, live(), file, list(DAMAGES)[number % len(DAMAGES)])


@pytest.mark.soak
@pytest.mark.parametrize("how", DAMAGES)
def test_a_run_that_goes_on_with_any_damage(
    call: Call, state_folder: Path, live: Callable[[], Path], how: str
) -> None:
    for file in LIVE_FILES:
        damage_live(call, live(), file, how)


SAVES = """import os, pathlib, signal, sys, time

def save(*_):
    time.sleep(1.5)
    pathlib.Path(os.environ["ECHELON_OUTPUT"], "saved").write_text("all of it")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
pathlib.Path(os.environ["ECHELON_OUTPUT"], "pid-0").write_text("ready")
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("file", ["record.json", "events.jsonl"])
def test_a_damaged_run_is_stopped_as_any_other(
    call: Call, state_folder: Path, write: Callable[..., Path], file: str
) -> None:
    """It has its time to save, `stop` returns when nothing of it runs, and has done what it was asked."""
    assert main.call(["run", "-d", "--name", "fm", str(write("saves.py", SAVES))]) == 0
    wait_for("runs/fm/pid-0")
    (state_folder / "fm" / file).write_text("{")
    stopped = call("stop", "fm")
    assert not processes_of(state_folder.parent)
    assert Path("runs/fm/saved").read_text() == "all of it"
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout.startswith(f"fm damaged: {state_folder / 'fm' / file} cannot be read")
    assert call("stop", "fm").returncode == 0
    removed = call("rm", "fm")
    assert (removed.returncode, removed.stdout) == (0, "fm\n"), removed.stderr


def test_a_lock_that_was_deleted_does_not_end_the_run(
    call: Call, state_folder: Path, live: Callable[[], Path]
) -> None:
    folder = live()
    (folder / "supervisor.lock").unlink()
    for _ in range(2):
        assert rows(call)["fm"]["state"] == "damaged"
        assert call("status", "fm").returncode == 0
    assert processes_of(state_folder.parent)
    assert call("rm", "fm").returncode == 115
    assert processes_of(state_folder.parent)
    assert call("rm", "--force", "fm").returncode == 0
    wait_until(lambda: not processes_of(state_folder.parent), "every process of the run to end")


def test_a_run_of_a_newer_version_that_goes_on_is_not_removed(
    call: Call, state_folder: Path, live: Callable[[], Path]
) -> None:
    folder = live()
    record = json.loads((folder / "record.json").read_bytes())
    (folder / "record.json").write_text(json.dumps(record | {"schema": 99}))
    refused = call("rm", "fm")
    assert (refused.returncode, refused.stdout) == (115, "")
    assert "something of it still runs: processes " in refused.stderr
    assert rows(call)["fm"]["state"] == "damaged"
    assert processes_of(state_folder.parent)
    removed = call("rm", "--force", "fm")
    assert (removed.returncode, removed.stdout) == (0, "fm\n"), removed.stderr
    assert not processes_of(state_folder.parent)
    assert set(rows(call)) == {"healthy"}


@pytest.mark.parametrize("file", ["record.json", "plan.json", "events.jsonl", "supervisor.lock"])
def test_the_gpus_of_a_damaged_run_stay_its_own(
    call: Call, gpus: StandIn, write: Callable[..., Path], home: Path, file: str
) -> None:
    gpus.show(2)
    script = str(write("stay.py", STAY))
    assert call("run", "-d", "--name", "fm", "--gpus", "1", script).returncode == 0
    wait_for("runs/fm/pid-0")
    engine = LocalEngine(home)
    before = engine.gpus_held()
    assert list(before.values()) == ["fm"]
    (home / "runs" / "fm" / file).unlink()
    assert engine.gpus_held() == before
    assert call("run", "--gpus", "1", "--name", "other", "--", "true").returncode == 0
    assert call("run", "--gpus", "2", "--no-wait", "--", "true").returncode == 114
    assert call("rm", "fm").returncode == 115
    assert engine.gpus_held() == before
    assert call("rm", "--force", "fm").returncode == 0
    assert engine.gpus_held() == {}


def test_what_is_no_run(call: Call, state_folder: Path, kept: Path) -> None:
    """Entries beside runs: what has a run's name is listed and can be removed, the rest is left alone."""
    (state_folder / "a-file").write_text("x")
    (state_folder / "empty").mkdir()
    (state_folder / "lost+found").mkdir()
    outside = state_folder.parent / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (state_folder / "a-link").symlink_to(outside)
    shutil.copytree(kept / "failed", state_folder / "copied")  # the record is of another run
    assert {name: row["state"] for name, row in rows(call).items()} == {
        "healthy": "succeeded",
        "a-file": "damaged",
        "empty": "damaged",
        "a-link": "damaged",
        "copied": "damaged",
    }
    removed = call("rm", "a-file", "empty", "a-link", "copied")
    assert (removed.returncode, removed.stderr) == (0, "")
    assert sorted(each.name for each in state_folder.iterdir()) == ["healthy", "lost+found"]
    assert (outside / "precious").exists()


def test_a_damaged_name_is_taken_until_it_is_removed(call: Call, state_folder: Path, kept: Path) -> None:
    for file in ("record.json", "plan.json"):
        shutil.copytree(kept / "failed", state_folder / "failed")
        (state_folder / "failed" / file).unlink()
        refused = call("run", "--name", "failed", "--", "true")
        assert refused.returncode in (112, 115)
        assert "echelon" in refused.stderr
        assert call("rm", "failed").returncode == 0


def test_a_record_of_a_newer_version(call: Call, state_folder: Path, kept: Path) -> None:
    folder = state_folder / "failed"
    shutil.copytree(kept / "failed", folder)
    record = json.loads((folder / "record.json").read_bytes())
    (folder / "record.json").write_text(json.dumps({**record, "schema": 99}))
    assert rows(call)["failed"]["state"] == "damaged"
    assert "upgrade" in call("status", "failed").stdout
    assert call("rm", "failed").returncode == 0
    assert RunStore(state_folder.parent).names() == ["healthy"]
