"""Results come home, and none is lost on the way."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.engines.conformance.harness import PATIENCE
from tests.engines.kubernetes.small import stored

from echelon.agent.files import landing, receiver
from echelon.engines import durable
from echelon.engines.base import TakeOver
from echelon.engines.kubernetes import control, objects
from echelon.engines.kubernetes.client.place import Place
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.engines.kubernetes.files.results import collecting, forgetting
from echelon.engines.kubernetes.files.results.gather import Gathered
from echelon.engines.kubernetes.files.results.seen import Seen
from echelon.engines.kubernetes.files.results.shards import Missing, Shard
from echelon.engines.kubernetes.files.results.waiting_for_owner import Wanted
from echelon.engines.kubernetes.follow.keeper import KeeperView, Kept
from echelon.engines.kubernetes.follow.view import View, read_record
from echelon.engines.machine import Submissions, process_name
from echelon.engines.results import holds_results
from echelon.errors import InvalidJob, ResultsIncomplete, StateTrouble
from echelon.handle import Run
from echelon.model.copy import LeftOut
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.pods.pod import Output, PodOptions
from echelon.model.run import RunRef
from echelon.submit import Prepared, submit

cluster_only = [pytest.mark.cluster, pytest.mark.slow]
WRITES = "import os; open(os.environ['ECHELON_OUTPUT'] + '/made', 'w').write('by it')"


FETCHED = {"at": 5.0, "host": "theirs", "path": "/home/ann/runs/demo"}
END = Event(kind="finished", at=4.0, outcome="succeeded", exit_code=0)


class Taking:
    """A process that collects a run with two workers: what it finds, and what it does."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        submitted: bool,
        claimed: bool = True,
        collected: object = None,
        then: object = None,
        pods: tuple[str | None, ...] = ("demo-0", "demo-1"),
        missing: tuple[Missing, ...] = (),
        end: Event | None = END,
        may: bool = True,
        leave: bool = False,
        stored_end: Event | None = None,
    ) -> None:
        self._may = may
        self.done: list[str] = []
        self.submissions = Submissions()
        self.uid, self.created = stored().uid, stored().run.created
        if submitted:
            self.submissions.remember(self.uid, Path("runs/demo").absolute())
        claim = {"holder": process_name() if claimed else "theirs/1/2/x", "until": 4e9}
        now = stored(tender=claim, collected=collected)
        records = iter([replace(now, end=stored_end) if stored_end is not None else now])
        later = stored(tender=claim, collected=then if then is not None else collected)
        shards = [Shard(worker=number, pod=each) for number, each in enumerate(pods)]

        class Seen:
            view = View(stored=later, jobs=[], pods=[])
            events = [end] if end is not None else []
            shards = staticmethod(lambda: shards)

        def gather(*_: object) -> tuple[Gathered, View]:
            self.done.append("gather")
            return Gathered(brought=not missing, missing=missing, left_out=(PIPE,)), Seen.view

        class Left:
            shards = staticmethod(lambda: [Shard(worker=0), Shard(worker=1)])

        monkeypatch.setattr(collecting, "see", lambda *_: Left if leave else Seen)
        monkeypatch.setattr(forgetting, "_LOOK", 0.0)
        if not leave:
            monkeypatch.setattr(forgetting, "patience_for", lambda *_: 0.0)
        monkeypatch.setattr(collecting, "read_record", lambda *_: next(records, later))
        monkeypatch.setattr(collecting, "read_alone", lambda *_: later)
        monkeypatch.setattr(collecting, "_look_at_end", lambda *_: Seen)
        monkeypatch.setattr(collecting, "_gather_all", gather)
        monkeypatch.setattr(collecting, "_force_to_disk", lambda _: self.done.append("disk"))
        for module, name in (
            (objects, "tie_record"),
            (objects, "drop_payload"),
            (control, "release_workers"),
            (control, "release_keeper"),
            (control, "end_jobs"),
        ):
            monkeypatch.setattr(module, name, lambda *_, name=name: self.done.append(name))

    def may(self, *_: object, **__: object) -> bool:
        return self._may

    def patch(self, _kind: str, _name: str, change: dict[str, Any], *, uid: str) -> None:
        assert uid == self.uid
        self.done.append("patch")
        self.written = json.loads(change["metadata"]["annotations"]["echelon.dev/collected"])

    def collect(self) -> None:
        collecting.collect_results(self, self.submissions, stored().run.ref, None)  # type: ignore[arg-type]

    def fetched(self) -> bool:
        return self.submissions.fetched(self.uid, self.created) is not None


PIPE = LeftOut(path="worker-1/pipe", why="a pipe")
LOST = Missing(worker=1, why="its pod is gone", lost=True)
SILENT = Missing(worker=1, why="its node does not respond")


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "state"))
    return monkeypatch


@pytest.mark.parametrize("missing", [LOST, SILENT])
def test_what_cannot_be_copied_is_with_the_error_of_what_is_missing(
    apart: pytest.MonkeyPatch, missing: Missing
) -> None:
    with pytest.raises(ResultsIncomplete) as caught:
        Taking(apart, submitted=True, missing=(missing,)).collect()
    assert list(caught.value.left_out) == [PIPE]


def test_without_the_right_to_fetch_them_results_are_missing_and_not_fetched(
    apart: pytest.MonkeyPatch,
) -> None:
    """Workers that wait, as they were told to, keep them; of others they are gone, which is no success."""
    held = Taking(apart, submitted=True, missing=(SILENT,), may=False)
    with pytest.raises(
        ResultsIncomplete, match="worker 1: its files not fetched: you may not create"
    ) as caught:
        held.collect()
    assert "echelon doctor --role" in caught.value.hint
    assert (held.done, held.fetched()) == (["gather"], False)
    gone = Taking(apart, submitted=True, missing=(LOST,), may=False)
    for _ in range(2):
        with pytest.raises(ResultsIncomplete, match="may not create pods/exec, and its pod is gone"):
            gone.collect()
    assert gone.written["path"] == ""
    assert gone.written["missing"] == [
        "worker 1: its files not fetched: you may not create pods/exec, and its pod is gone"
    ]


@pytest.mark.core
@pytest.mark.parametrize("submitted", [True, False])
def test_what_workers_hold_is_fetched_though_the_record_says_it_was(
    apart: pytest.MonkeyPatch, submitted: bool
) -> None:
    taking = Taking(apart, submitted=submitted, collected=FETCHED)
    taking.collect()
    assert taking.done[:3] == ["gather", "disk", "patch"]
    assert "release_workers" in taking.done
    assert taking.fetched()
    assert taking.written["path"] == str(Path("runs/demo").absolute())


def test_who_takes_over_when_all_is_fetched_and_gone_has_the_owners_end(apart: pytest.MonkeyPatch) -> None:
    taking = Taking(apart, submitted=False, collected=FETCHED, pods=(None, None))
    taking.collect()
    assert (taking.done, taking.fetched()) == ([], False)
    lacking = {**FETCHED, "missing": ["worker 1: its files not fetched: its pod is gone"]}
    taking = Taking(apart, submitted=False, collected=lacking, pods=(None, None))
    with pytest.raises(ResultsIncomplete, match="worker 1"):
        taking.collect()
    assert (taking.done, taking.fetched()) == ([], False)


def test_who_takes_over_while_the_workers_leave_does_not_fetch_once_more(apart: pytest.MonkeyPatch) -> None:
    """The owner has all of it, has told the workers to leave, and has given its claim up."""
    taking = Taking(apart, submitted=False, collected=FETCHED, leave=True)
    taking.collect()
    assert (taking.done, taking.fetched()) == ([], False)


def test_the_submitter_says_what_is_missing_though_the_record_has_it_all(apart: pytest.MonkeyPatch) -> None:
    """Forged, and the workers are gone: nothing else than their loss is known here."""
    taking = Taking(apart, submitted=True, collected=FETCHED, pods=("demo-0", None), missing=(LOST,))
    with pytest.raises(ResultsIncomplete, match="worker 1") as caught:
        taking.collect()
    assert "were brought to" in caught.value.hint
    assert (taking.done, taking.fetched()) == (["gather"], False)


@pytest.mark.parametrize(("missing", "raised"), [((LOST,), False), ((SILENT,), True)])
def test_the_owner_is_done_while_this_one_fetches(
    apart: pytest.MonkeyPatch, missing: tuple[Missing, ...], raised: bool
) -> None:
    """It has released the workers: what is gone here is there. What only does not respond may be here yet."""
    taking = Taking(apart, submitted=False, then=FETCHED, missing=missing)
    with pytest.raises(ResultsIncomplete) if raised else nullcontext():
        taking.collect()
    assert (taking.done, taking.fetched()) == (["gather"], False)


def test_who_neither_submitted_it_nor_took_it_over_fetches_nothing(apart: pytest.MonkeyPatch) -> None:
    taking = Taking(apart, submitted=False, claimed=False, collected=FETCHED)
    taking.collect()
    assert taking.done == []


def test_nobody_is_released_of_a_run_that_goes_on(apart: pytest.MonkeyPatch) -> None:
    for submitted in (True, False):
        taking = Taking(apart, submitted=submitted, collected=FETCHED, end=None)
        taking.collect()
        assert (taking.done, taking.fetched()) == ([], False)


@pytest.mark.parametrize("taken", [True, False])
def test_a_claim_that_the_fetch_has_taken_is_given_back(apart: pytest.MonkeyPatch, taken: bool) -> None:
    engine = KubernetesEngine()
    engine.__dict__["api"] = type("Nothing", (), {"namespace": "ours"})()
    done: list[str] = []

    class Claim:
        held = False

        def take(self) -> bool:
            self.held = taken
            return True

        def release(self) -> None:
            done.append("release")

    def collect(*given: Any) -> None:
        given[-1].tender.take()
        raise ResultsIncomplete("worker 1 is gone")

    apart.setattr(collecting, "collect_results", collect)
    engine._wanted["demo"] = Wanted(tender=Claim(), asked=TakeOver())
    with pytest.raises(ResultsIncomplete):
        engine.collect(RunRef(engine="k8s", name="demo"))
    assert done == ["release"] * taken


@pytest.fixture
def job(image: Callable[[str], str]) -> Callable[..., Job]:
    def make(**pod: Any) -> Job:
        options = PodOptions(image=image("python"), **pod)
        command = ("python3", "-c", WRITES)
        return Job(name="demo", command=command, framework="plain", cwd="/tmp", pod=options)

    return make


@pytest.mark.cluster
@pytest.mark.slow
class TestOnACluster:
    @pytest.mark.core
    def test_a_volume_made_for_the_run_comes_home_before_it_goes(
        self, engine: KubernetesEngine, job: Callable[..., Job], namespace: Kubectl
    ) -> None:
        run = submit(Prepared(job=job(output=Output(size=10 << 20))), engine)
        assert list(run.events())[-1].kind == "finished"
        with pytest.raises(StateTrouble, match="the volume claim demo-results") as caught:
            run.remove()  # nobody has fetched them
        assert "`echelon rm --force demo`" in caught.value.hint
        assert [each["metadata"]["name"] for each in namespace.items("pvc")] == ["demo-results"]
        run.remove(force=True)
        wait_until(lambda: not namespace.items("pvc"), "the volume to go")
        run = submit(Prepared(job=job(output=Output(size=10 << 20))), engine)
        assert run.wait(PATIENCE).state == "succeeded"
        assert Path("runs/demo/made").read_text() == "by it"
        run.remove()
        wait_until(lambda: not namespace.items("pvc"), "the volume to go")
        assert not namespace.items("job")

    def test_no_worker_is_released_before_its_results_are_on_the_disk(
        self, engine: KubernetesEngine, job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = submit(Prepared(job=job()), engine)
        list(run.events())

        def fail(folder: Path) -> None:
            assert (folder / "made").exists()
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as broken:
            broken.setattr(durable, "sync_tree", fail)
            with pytest.raises(StateTrouble, match="Input/output error"):
                run.collect()
        assert _running(engine, "demo")
        run.collect()
        wait_until(lambda: not _running(engine, "demo"), "the workers to leave")

    def test_a_users_volume_keeps_them_and_get_copies(
        self, engine: KubernetesEngine, job: Callable[..., Job], namespace: Kubectl, tmp_path: Path
    ) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shelf"}}
        namespace.create({**claim, "spec": spec})
        run = submit(Prepared(job=job(output=Output(claim="shelf", path="a/b"))), engine)
        assert run.wait(PATIENCE).state == "succeeded"
        assert not holds_results(Path("runs/demo"))
        assert run.get("made", to=tmp_path / "x") == tmp_path / "x" / "made"
        assert (run.get() / "made").read_text() == "by it"
        assert Path("runs/demo/made").read_text() == "by it"
        run.remove()
        assert namespace.find("pvc", "shelf") is not None

    def test_another_machine_copies_and_the_submitter_collects(
        self,
        engine: KubernetesEngine,
        job: Callable[..., Job],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A colleague's `get` brings a copy, with or without a target, and leaves workers and record; their
        `wait` brings nothing. What the submitter has collected cannot be had from the workers again.
        """
        run = submit(Prepared(job=replace(job(), results=str(tmp_path / "laptop" / "runs" / "demo"))), engine)
        (tmp_path / "other").mkdir()
        list(run.events())
        mine = KubernetesEngine(Place(namespace=engine.api.namespace))
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir(tmp_path / "other")
            elsewhere.setenv("ECHELON_HOME", str(tmp_path / "of-another-machine"))
            theirs = Run(RunRef(engine="k8s", name="demo"), mine)
            assert theirs.wait(PATIENCE).state == "succeeded"
            assert not Path("runs").exists()
            assert (theirs.get(to=tmp_path / "asked") / "made").read_text() == "by it"
            assert theirs.get("made", to=tmp_path / "x").read_text() == "by it"
            assert theirs.get("logs", to=tmp_path / "x").is_dir()
            assert (theirs.get() / "made").read_text() == "by it"
            assert Path("runs/demo/made").is_file()
        assert len(_running(engine, run.name)) == 1
        assert read_record(engine.api, RunRef(engine="k8s", name="demo")).collected is None
        assert run.wait(PATIENCE).state == "succeeded"
        assert (tmp_path / "laptop" / "runs" / "demo" / "made").read_text() == "by it"
        wait_until(lambda: not _running(engine, run.name), "the workers to go")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "of-another-machine"))
        monkeypatch.setattr("socket.gethostname", lambda: "a-third-machine")
        theirs = Run(
            RunRef(engine="k8s", name="demo"), KubernetesEngine(Place(namespace=engine.api.namespace))
        )
        with pytest.raises(InvalidJob) as caught:
            theirs.get(to=tmp_path / "y")
        assert "were brought to" in caught.value.hint

    def test_a_full_disk_at_home_does_not_keep_a_copy_from_going_elsewhere(
        self,
        engine: KubernetesEngine,
        job: Callable[..., Job],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        run = submit(Prepared(job=job()), engine)
        list(run.events())
        write = landing.write_all

        def full(file: int, data: bytes) -> None:
            if "/runs/demo/" in str(Path(f"/proc/self/fd/{file}").readlink()):
                raise OSError(errno.ENOSPC, "No space left on device")
            write(file, data)

        with monkeypatch.context() as faulty:
            faulty.setattr(receiver, "write_all", full)
            with pytest.raises(ResultsIncomplete, match=r"worker 0: .*made.* not fetched: the disk is full"):
                run.wait(PATIENCE)
            assert run.get("made", to=tmp_path / "elsewhere").read_text() == "by it"
        assert _running(engine, run.name), "the workers stay while their results are not all at home"
        assert (run.get() / "made").read_text() == "by it"
        wait_until(lambda: not _running(engine, run.name), "the workers to go")

    def test_results_that_nobody_fetched_in_time_are_said_to_be_gone(
        self, engine: KubernetesEngine, job: Callable[..., Job], tmp_path: Path
    ) -> None:
        run = submit(Prepared(job=job(linger=1.0)), engine)
        list(run.events())
        wait_until(lambda: not _running(engine, run.name), "the workers to go")
        for _ in range(2):
            with pytest.raises(
                ResultsIncomplete, match=r"worker 0: 2 files, .* not fetched: its pod"
            ) as caught:
                run.wait(PATIENCE)
            assert "--keep" in caught.value.hint
        colleague = Run(
            RunRef(engine="k8s", name=run.name), KubernetesEngine(Place(namespace=engine.api.namespace))
        )
        for status in (run.status(), colleague.status()):
            assert status.state == "succeeded"
            assert [each[:17] for each in status.missing] == ["worker 0: 2 files"]
        with pytest.raises((ResultsIncomplete, InvalidJob)):
            run.get("made", to=tmp_path / "x")
        run.remove()


def _running(engine: KubernetesEngine, name: str) -> list[str]:
    from echelon.engines.kubernetes.follow.view import find_record, pods_of
    from echelon.engines.kubernetes.state.workers import is_running

    stored = find_record(engine.api, RunRef(engine="k8s", name=name))
    pods = pods_of(engine.api, stored) if stored is not None else []
    return [pod.metadata.name for pod in pods if is_running(pod)]


def test_output_that_lacks_lines_is_an_error_once_the_results_are_here(apart: pytest.MonkeyPatch) -> None:
    """As on this machine; the second time, too, when only the record is read."""
    lacks = "worker 1: the log of rank 1 lacks lines: No space left on device"
    end = replace(END, missing=(lacks,))
    taking = Taking(apart, submitted=True, end=end)
    with pytest.raises(ResultsIncomplete, match=lacks) as caught:
        taking.collect()
    assert caught.value.exit_code == 123
    assert list(caught.value.left_out) == [PIPE]
    assert "release_workers" in taking.done
    assert taking.fetched()
    again = Taking(apart, submitted=True, collected=FETCHED, stored_end=end)
    with pytest.raises(ResultsIncomplete, match=lacks):
        again.collect()
    assert again.done == []


@pytest.mark.parametrize(
    ("outcome", "now", "before", "noted"),
    [
        ("failed", {0: "new"}, {0: "old"}, {0: "new"}),
        ("stopped", {}, {0: "old"}, {0: "old"}),  # it went while the results were fetched
        ("failed", {}, {}, None),  # nothing is known, so that what was noted of an earlier start stays
        ("succeeded", {0: "new"}, {0: "new"}, None),
    ],
)
def test_what_is_safe_is_noted_as_the_keeper_states_it_last(
    outcome: Any,
    now: dict[int, str],
    before: dict[int, str],
    noted: dict[int, str] | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def view_of(marks: dict[int, str]) -> KeeperView:
        kept = {worker: Kept(parts={"step": ("v", mark, 1)}) for worker, mark in marks.items()}
        return KeeperView(pod="keeper", kept=kept)

    monkeypatch.setenv("ECHELON_HOME", str(tmp_path))
    monkeypatch.setattr(collecting, "find_keeper", lambda *_: view_of(now))
    view = View(stored=stored(), jobs=[], pods=[])
    ended = Event(kind="finished", at=4.0, outcome=outcome)
    seen = Seen(view=view, events=[ended], keeper=view_of(before))
    none: Any = None
    submissions = Submissions()
    collecting._note_safe(none, submissions, seen, tmp_path)
    safe = submissions.safe_of(stored().uid)
    found = None if safe is None else {worker: each["step"][1] for worker, each in safe.parts.items()}
    assert found == noted
