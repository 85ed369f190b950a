"""All runs of a state folder: they appear whole, vanish whole, and a name belongs to one of them."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import threading
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

from echelon.engines import durable
from echelon.engines.local.folder import rundir, store
from echelon.engines.local.folder.events import EventFile, read_events
from echelon.engines.local.folder.store import RunStore
from echelon.errors import RunExists, StateTrouble, UnknownRun
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.run import Record, RunRef


def record(name: str) -> Record:
    return Record(
        ref=RunRef(engine="local", name=name),
        job=Job(name=name, script="train.py", env={"LR": "1"}),
        created=12.5,
        owner="me",
        results="/results",
    )


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "state")


def test_a_run_is_written_and_read_back(runs: RunStore) -> None:
    assert runs.names() == []
    folder = runs.create(record("fm"), secret="hush", bundle=b"code")
    assert runs.names() == ["fm"]
    assert store.read_record(runs.find("fm")) == record("fm")
    assert (folder.secret.read_text(), folder.bundle.read_bytes()) == ("hush", b"code")
    assert [event.kind for event in read_events(folder)] == ["recorded"]
    assert {path.stat().st_mode & 0o077 for path in (folder.path, folder.secret, folder.events)} == {0}


def test_a_name_is_taken_whole_or_free(runs: RunStore) -> None:
    outcomes: list[str] = []

    def take(number: int) -> None:
        try:
            runs.create(record("fm"), secret=str(number), bundle=None)
            outcomes.append("made")
        except RunExists as error:
            outcomes.append(error.hint)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("made") == 1
    assert sum("`echelon rm fm` frees the name" in each for each in outcomes) == 7
    assert [path.name for path in (runs.home / "runs").iterdir()] == ["fm"]
    runs.delete("fm")
    assert list((runs.home / "runs").iterdir()) == []
    runs.create(record("fm"), secret="", bundle=None)


def test_a_folder_that_others_clear_up_before_it_is_locked(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has removed its lock file, and another one, which clears up too, has made and locked a new one: it
    would delete what is written into the folder.
    """
    flock, move, others = fcntl.flock, durable.move_folder, contextlib.ExitStack()
    replaced: list[Path] = []

    def late(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        if not replaced and how == fcntl.LOCK_EX:
            lock = Path(f"/proc/self/fd/{descriptor}").resolve()
            replaced.append(lock)
            lock.unlink()
            lock.touch()
            flock(others.enter_context(lock.open("rb")), fcntl.LOCK_EX)
            others.callback(shutil.rmtree, lock.parent, ignore_errors=True)
            threading.Timer(0.2, others.close).start()

    def later(source: Path, target: Path) -> None:
        others.close()
        move(source, target)

    monkeypatch.setattr(fcntl, "flock", late)
    monkeypatch.setattr(durable, "move_folder", later)
    folder = runs.create(record("fm"), secret="hush", bundle=b"code")
    assert replaced
    assert store.read_record(folder) == record("fm")


def test_an_unknown_name(runs: RunStore) -> None:
    runs.create(record("fashion"), secret="", bundle=None)
    with pytest.raises(UnknownRun) as caught:
        runs.find("fashoin")
    assert caught.value.hint == "did you mean 'fashion'?"
    with pytest.raises(UnknownRun) as caught:
        runs.delete("zzz")
    assert "ps -a" in caught.value.hint


def test_a_state_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runs = RunStore(tmp_path / "file")
    with pytest.raises(StateTrouble) as caught:
        runs.create(record("fm"), secret="", bundle=None)
    assert str(tmp_path / "file") in caught.value.message
    assert caught.value.hint
    with pytest.raises(StateTrouble):
        runs.names()


def test_a_record_that_was_damaged(runs: RunStore) -> None:
    folder = runs.create(record("fm"), secret="", bundle=None)
    folder.record.write_bytes(b"{}")
    with pytest.raises(StateTrouble) as caught:
        store.read_record(folder)
    assert "record.json cannot be read" in caught.value.message
    assert "echelon rm fm" in caught.value.hint


def test_events_are_read_as_they_come(runs: RunStore) -> None:
    folder = runs.create(record("fm"), secret="", bundle=None)
    events = EventFile(folder)
    assert [event.kind for event in events.read()] == ["recorded"]
    store.append_event(folder, Event(kind="queued", at=1.0, reason="why"))
    with folder.events.open("ab") as file:
        file.write(b'not JSON\n{"kind": "note", "at"')
    assert list(events.read()) == [Event(kind="queued", at=1.0, reason="why")]
    with folder.events.open("ab") as file:
        file.write(b': 2.0, "reason": "more"}\n')
    assert list(events.read()) == [Event(kind="note", at=2.0, reason="more")]
    assert list(events.read()) == []


def test_how_it_ended(runs: RunStore) -> None:
    folder = runs.create(record("fm"), secret="", bundle=None)
    assert store.read_final(folder) is None
    store.write_final(folder, Event(kind="finished", at=3.0, outcome="failed", exit_code=3))
    store.write_final(folder, Event(kind="finished", at=4.0, outcome="lost", exit_code=117))
    final = store.read_final(folder)
    assert final is not None
    assert (final.outcome, final.exit_code) == ("failed", 3)


def test_devices_are_given_out_by_one_at_a_time(runs: RunStore) -> None:
    order: list[str] = []
    inside = threading.Event()

    def other() -> None:
        inside.wait(PATIENCE)
        with runs.devices_locked():
            order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    with runs.devices_locked():
        inside.set()
        order.append("first")
        order.append("still first")
    thread.join()
    assert order == ["first", "still first", "other"]


def test_a_run_that_is_looked_at_while_it_is_removed(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look holds the run's locks for a moment; the folder does not stay for that."""
    folder = runs.create(record("fm"), secret="hush", bundle=None)
    with contextlib.ExitStack() as look:
        look.enter_context(rundir.open_locked(folder.takers_lock))
        clear_up = runs._clear_up

        def clear_up_and_end_look() -> None:
            clear_up()
            look.close()

        monkeypatch.setattr(runs, "_clear_up", clear_up_and_end_look)
        runs.delete("fm")
    assert list((runs.home / "runs").iterdir()) == []
