"""Copies of a part of the results, and from volumes: what does not come is named, with its own exit code,
and what cannot be copied at all is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engines.kubernetes.files.results.test_shards import PLAN
from tests.engines.kubernetes.local_pod import Pod
from tests.engines.kubernetes.small import RUNNING, WAITING, ended, pod, stored

from echelon.bundle.zipapp import agent_archive
from echelon.engines.kubernetes import control, objects
from echelon.engines.kubernetes.client.api import NotThere
from echelon.engines.kubernetes.files.reconnect import Opener
from echelon.engines.kubernetes.files.results import collecting, fetching
from echelon.engines.kubernetes.files.results.shards import Shard, shards_now
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.machine import Submissions
from echelon.errors import InvalidJob, ResultsIncomplete
from echelon.model.copy import Copied, LeftOut
from echelon.model.event import Event
from echelon.model.pods.pod import Output
from echelon.model.run import RunRef

REF = RunRef(engine="k8s", name="demo")
FAILED = LeftOut(path="model.pt", why="Input/output error")
PIPE = LeftOut(path="pipe", why="a pipe")


@pytest.fixture
def reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Opener]:
    """Pods `pod-0` and `pod-1`, each a folder; `gone` is none any more."""
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(agent_archive())
    for worker in range(2):
        (tmp_path / f"pod-{worker}" / "logs").mkdir(parents=True)
        (tmp_path / f"pod-{worker}" / "logs" / f"rank-{worker}.log").write_text(f"by {worker}")
        (tmp_path / f"pod-{worker}" / "made").write_text(f"by {worker}")
    os.mkfifo(tmp_path / "pod-0" / "logs" / "pipe")

    def reached(name: str) -> Opener:
        real = Pod(archive)

        @contextmanager
        def opened(words: Any) -> Iterator[Any]:
            if name == "gone":
                raise NotThere("pod 'gone' has ended", hint="")
            with real.open([words[0], str(tmp_path / name), *words[2:]]) as channel:
                yield channel

        return opened

    return reached


def part(reach: Callable[[str], Opener], path: str, to: Path, *pods: str | None) -> list[LeftOut]:
    shards = [
        Shard(worker=number, pod=each, why="" if each else "its pod is gone")
        for number, each in enumerate(pods)
    ]
    told: list[LeftOut] = []
    fetching._fetch_part(shards, reach, path, to, REF, told.append)
    return told


def test_logs_of_all_workers_and_what_cannot_be_copied(
    reach: Callable[[str], Opener], tmp_path: Path
) -> None:
    told = part(reach, "logs", tmp_path / "to", "pod-0", "pod-1")
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["rank-0.log", "rank-1.log"]
    assert [each.why for each in told] == ["a pipe"]


@pytest.mark.parametrize("other", [None, "gone"])
def test_the_logs_of_a_worker_that_is_gone_are_named(
    reach: Callable[[str], Opener], tmp_path: Path, other: str | None
) -> None:
    with pytest.raises(ResultsIncomplete, match=r"worker 1: logs not fetched: its pod is gone"):
        part(reach, "logs", tmp_path / "to", "pod-0", other)
    assert (tmp_path / "to" / "rank-0.log").read_text() == "by 0"


def test_a_file_that_one_worker_has_is_all_that_was_asked_for(
    reach: Callable[[str], Opener], tmp_path: Path
) -> None:
    part(reach, "logs/rank-0.log", tmp_path / "log", "pod-0", None)
    assert (tmp_path / "log").read_text() == "by 0"
    with pytest.raises(ResultsIncomplete, match=r"worker 1: logs/rank-1.log not fetched"):
        part(reach, "logs/rank-1.log", tmp_path / "log", "pod-0", None)
    with pytest.raises(InvalidJob):
        part(reach, "logs/rank-7.log", tmp_path / "log", "pod-0", "pod-1")


def copied(*left_out: LeftOut) -> Copied:
    failed = tuple(each for each in left_out if each is FAILED)
    return Copied(target="there", files=1, size=1, there=0, left_out=left_out, failed=failed)


def test_a_file_that_was_listed_and_did_not_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetching, "fetch_tree", lambda *_, **__: copied(FAILED, PIPE))
    told: list[LeftOut] = []
    unused: Any = lambda _pod: None  # noqa: E731
    with pytest.raises(
        ResultsIncomplete, match=r"worker 0: 1 file, \(model.pt\) not fetched: model.pt: Input"
    ):
        fetching._fetch_part([Shard(worker=0, pod="pod-0")], unused, "ckpt", tmp_path, REF, told.append)
    assert told == [PIPE]


def test_a_worker_without_a_pod_is_a_part_of_a_run_that_goes_on() -> None:
    pods = [
        pod(0, state=RUNNING),
        pod(1, state=ended(1), name="old"),
        pod(1, state=WAITING, made="2026-01-02T00:00:00Z"),
    ]
    assert shards_now(PLAN, pods) == [
        Shard(worker=0, pod="demo-0-abcde"),
        Shard(worker=1, why="no pod of it runs now"),
    ]


@pytest.fixture
def on_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A run that is over, whose results are on a volume that was made for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "state"))
    plain = stored()
    options = replace(plain.run.job.pod, output=Output(size=1 << 20))
    over = replace(plain, run=replace(plain.run, job=replace(plain.run.job, pod=options)))

    class Seen:
        view = View(stored=over, jobs=[{"kind": "Job"}], pods=[])
        events = (Event(kind="finished", at=4.0, outcome="succeeded", exit_code=0),)
        shards = staticmethod(list)

    monkeypatch.setattr(collecting, "read_record", lambda *_: over)
    monkeypatch.setattr(fetching, "read_record", lambda *_: over)
    monkeypatch.setattr(collecting, "_look_at_end", lambda *_: Seen)
    monkeypatch.setattr(fetching, "jobs_of", lambda *_: Seen.view.jobs)
    monkeypatch.setattr(fetching, "pods_of", lambda *_: [])
    monkeypatch.setattr(collecting, "volume_of", lambda *_: SimpleNamespace(status="Bound"))
    monkeypatch.setattr(collecting, "reach_output", lambda *_: nullcontext((None, "/volume")))
    monkeypatch.setattr(fetching, "reach_output", lambda *_: nullcontext((None, "/volume")))
    monkeypatch.setattr(collecting, "_force_to_disk", lambda _: None)
    for module, name in (
        (objects, "tie_record"),
        (objects, "drop_payload"),
        (control, "release_workers"),
        (control, "release_keeper"),
    ):
        monkeypatch.setattr(module, name, lambda *_: None)
    return monkeypatch


class Api:
    """An API server that lets everything be done."""

    may = staticmethod(lambda *_, **__: True)
    patch = staticmethod(lambda *_, **__: None)


def test_a_volume_of_the_run_is_not_given_up_before_all_of_it_is_here(on_volume: pytest.MonkeyPatch) -> None:
    mine = Submissions()
    mine.remember(stored().uid, Path("runs/demo").absolute())
    on_volume.setattr(collecting, "fetch_tree", lambda *_, **__: copied(PIPE, FAILED))
    with pytest.raises(
        ResultsIncomplete, match=r"1 file, \(model.pt\) not fetched: model.pt: Input"
    ) as caught:
        collecting.collect_results(Api(), mine, REF, None)  # type: ignore[arg-type]
    assert "worker" not in caught.value.message
    assert list(caught.value.left_out) == [PIPE]
    assert mine.fetched(stored().uid, stored().run.created) is None  # so that `rm` leaves the volume
    on_volume.setattr(collecting, "fetch_tree", lambda *_, **__: copied(PIPE))
    assert collecting.collect_results(Api(), mine, REF, None) == (PIPE,)  # type: ignore[arg-type]
    assert mine.fetched(stored().uid, stored().run.created) is not None


def test_get_from_a_volume_tells_what_did_not_come(on_volume: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[LeftOut] = []

    def get() -> Path:
        return fetching.fetch_results(Api(), Submissions(), REF, ".", tmp_path, told.append)  # type: ignore[arg-type]

    on_volume.setattr(fetching, "fetch_tree", lambda *_, **__: copied(PIPE))
    assert (get(), told) == (Path("there"), [PIPE])
    on_volume.setattr(fetching, "fetch_tree", lambda *_, **__: copied(FAILED))
    with pytest.raises(ResultsIncomplete, match=r"model.pt"):
        get()
