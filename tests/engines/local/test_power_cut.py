"""A power cut at any moment of a run: what is found afterwards is readable, listed as damaged, or not there.

The writes of a real submission and its end are recorded, and replayed up to each point into another state
folder. What was not forced to disk by then is there, torn, or missing."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

from echelon.admission import admit
from echelon.bundle import pack_files
from echelon.engines import durable
from echelon.engines.local import engine as local_engine
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import rundir, store
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.run import RunRef

KINDS = ("write", "append", "rename", "sync file", "sync folder")
REF = RunRef(engine="local", name="fm")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call that reached the disk, or asked for it."""

    kind: str
    path: Path  # below the state folder
    content: bytes = b""
    target: Path | None = None
    synced: bool = False


@pytest.fixture
def steps(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Every write of a run, from its record to its end; the supervisor's are made here, in its place."""
    made: list[Step] = []

    def record(name: str, kind: str) -> None:
        real: Callable[..., None] = getattr(durable, name)

        def call(path: Path, *rest: object, **more: object) -> None:
            real(path, *rest, **more)
            first = rest[0] if rest else b""
            made.append(
                Step(
                    kind=kind,
                    path=path.relative_to(home),
                    content=first if isinstance(first, bytes) else b"",
                    target=first.relative_to(home) if isinstance(first, Path) else None,
                    synced=kind == "write" and bool(more.get("sync", True)),
                )
            )

        monkeypatch.setattr(durable, name, call)

    home.mkdir()
    for name, kind in zip(
        ("write_file", "append_line", "rename", "sync_file", "sync_folder"), KINDS, strict=True
    ):
        if name != "sync_folder":
            record(name, kind)
    sync_folder = durable.sync_folder

    def sync(path: Path) -> None:
        if home == path or home in path.parents:
            sync_folder(path)
            made.append(Step(kind="sync folder", path=path.relative_to(home)))

    monkeypatch.setattr(durable, "sync_folder", sync)
    monkeypatch.setattr(local_engine, "spawn_supervisor", lambda *_, **__: None)
    engine = LocalEngine(home)
    job = Job(name="fm", command=("true",), framework="plain", cwd=str(Path.cwd()), workers=2)
    engine.record(job, pack_files({"code.py": b"x" * 500}))
    admit(REF, engine)
    folder = engine.store.dir("fm")
    folder.supervisor_log.touch()
    durable.replace_file(folder.supervisor, b'{"pid": 1}', sync=False)
    for worker in range(2):
        store.append_event(folder, Event(kind="worker-started", at=2.0, worker=worker, pid=7))
    store.append_event(folder, _end("verdict"))
    store.write_final(folder, _end("finished"))
    return made


def _end(kind: str) -> Event:
    return Event(kind=kind, at=3.0, outcome="succeeded", exit_code=0)  # type: ignore[arg-type]


def replay(steps: list[Step], home: Path, choose: Callable[[int], int]) -> None:
    """The state folder after these steps and a power cut.

    Names that no sync of their folder followed, and content that no sync of its file followed, are as
    `choose` says. A folder's files are written under the name that it has in the end.
    """
    names: dict[Path, list[Step]] = {}  # file -> what was written to it
    lasting: dict[Path, int] = {}  # file -> how much of it is on the disk for certain
    for number, step in enumerate(steps):
        if step.kind in ("write", "append"):
            names.setdefault(step.path, []).append(step)
            if step.synced:
                lasting[step.path] = sum(len(each.content) for each in names[step.path])
        elif step.kind == "sync file" and step.path in names:
            lasting[step.path] = sum(len(each.content) for each in names[step.path])
        elif step.kind == "rename" and step.target is not None:
            later = steps[number + 1 :]
            kept = any(s.kind == "sync folder" and s.path == step.target.parent for s in later)
            if not kept and choose(2) == 0:
                continue  # the new name is not on the disk
            for path in [path for path in names if path == step.path or step.path in path.parents]:
                new = step.target / path.relative_to(step.path)
                names[new] = names.pop(path)
                lasting[new] = lasting.pop(path, 0)
    for path, written in names.items():
        content = b"".join(each.content for each in written)
        safe = lasting.get(path, 0)
        whole = [
            content,
            content[:safe],
            content[: (safe + len(content)) // 2],
            content[:safe] + bytes(len(content) - safe),
        ]
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(whole[choose(len(whole))])
    if (home / "runs" / "fm").exists() and choose(2):
        rundir.RunDir(home / "runs" / "fm").supervisor_log.touch()


def check(home: Path) -> str:
    """What a user finds: the state that is listed, or none. The run can be looked at and removed."""
    engine = LocalEngine(home)
    run = Run(REF, engine)
    rows = engine.runs()
    if not rows:
        return "absent"
    (row,) = rows
    assert run.status().state == row.state
    list(run.logs())
    if row.state not in ("recorded", "queued", "starting", "damaged"):
        assert run.wait(PATIENCE).state == row.state
    run.remove()
    assert engine.names() == []
    return row.state


@pytest.mark.parametrize("rounds", [4, pytest.param(400, marks=pytest.mark.soak)])
def test_every_point(steps: list[Step], tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert {step.kind for step in steps} == set(KINDS)
    found = set()
    for number, seed in itertools.product(range(len(steps) + 1), range(rounds)):
        home = tmp_path / "replayed"
        replay(steps[:number], home, random.Random(seed * 1000 + number).randrange)
        state = check(home)
        found.add(state)
        # Once the submission's record is on the disk the run is never damaged, and its end is never lost.
        assert state != "damaged", f"{number} of {len(steps)} steps, round {seed}"
        if number == len(steps):
            assert state == "succeeded"
        (home / "runs").mkdir(exist_ok=True, parents=True)
        engine = LocalEngine(home)  # the next submission clears up
        engine.record(
            Job(name="next", command=("true",), framework="plain", results=str(tmp_path / "r")), None
        )
        assert [each.name for each in (home / "runs").iterdir()] == ["next"]
        shutil.rmtree(home)
    assert {"absent", "succeeded", "lost"} <= found


def test_half_made_folders_are_left_to_readers_and_to_their_makers(home: Path) -> None:
    runs = home / "runs"
    for name in (".new-1", ".gone-1", ".new-2", ".gone-2", ".gone-3"):
        (runs / name).mkdir(parents=True)
        (runs / name / "record.json").write_text("{")
    engine = LocalEngine(home)
    assert engine.runs() == []
    assert engine.names() == []
    engine.cluster(gpus=False)
    assert len(list(runs.iterdir())) == 5  # readers change nothing
    making, supervised = rundir.RunDir(runs / ".new-2"), rundir.RunDir(runs / ".gone-2")
    job = Job(name="fm", command=("true",), framework="plain", cwd=str(Path.cwd()))
    with rundir.open_locked(making.takers_lock), rundir.hold(supervised) as lock:
        assert lock is not None
        engine.record(job, None)
        assert sorted(each.name for each in runs.iterdir()) == [".gone-2", ".new-2", "fm"]
    engine.remove(REF)
    assert list(runs.iterdir()) == []
