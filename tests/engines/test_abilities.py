"""What engines say of themselves, what those lack that lack it, and which rank a shell is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.kubernetes.typed import as_pod

from echelon.engines.abilities import choose_rank, required
from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.engines.kubernetes.abilities.shell import running_pod
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.errors import InvalidJob, Unavailable
from echelon.model.job import Job
from echelon.model.run import Record, RunRef
from echelon.submit import Prepared, submit

ABILITIES = ("shell", "volumes", "checkup", "usage", "manifests")


@pytest.mark.parametrize(
    ("engine", "has"),
    [(LOCAL, {"shell", "checkup", "usage"}), (CLUSTER, set(ABILITIES)), ("memory", set())],
)
def test_abilities(home: Path, monkeypatch: pytest.MonkeyPatch, engine: str, has: set[str]) -> None:
    """Asking what an engine can do reads nothing and reaches nothing."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    found: Engine = MemoryEngine() if engine == "memory" else choose_engine(engine)
    for name in ABILITIES:
        ability = getattr(found, name)
        assert (ability is not None) == (name in has)
        if ability is not None:
            assert required(ability, name, found.traits) is ability
            continue
        with pytest.raises(Unavailable, match=f"{found.traits.place} has no {name}") as caught:
            required(ability, name, found.traits)
        assert "--on" in caught.value.hint
    assert not home.exists()


def test_traits() -> None:
    local, cluster = choose_engine(LOCAL).traits, choose_engine(CLUSTER).traits
    assert (local.remote, local.keeps_queue, local.shared, local.code_limit) == (False, True, False, None)
    assert (cluster.remote, cluster.keeps_queue, cluster.shared) == (True, False, True)
    assert cluster.code_limit is not None


def test_an_engine_of_no_known_name() -> None:
    with pytest.raises(InvalidJob, match="'mars' is not known") as caught:
        choose_engine("mars")
    assert caught.value.hint == "local or k8s"


def record(*, started: bool = True, **job: int) -> Record:
    made = Job(name="fm", command=("true",), framework="plain", **job)  # type: ignore[arg-type]
    engine = MemoryEngine({"true": Act(lasts=True)})
    if not started:
        return engine.read(engine.record(made, None))
    submit(Prepared(job=made), engine)
    return engine.read(RunRef(engine="memory", name="fm"))


@pytest.mark.parametrize(
    ("worker", "rank", "chosen"),
    [(None, None, (0, 0)), (1, None, (1, 2)), (None, 3, (1, 3)), (1, 3, (1, 3)), (0, 1, (0, 1))],
)
def test_the_rank_that_is_meant(worker: int | None, rank: int | None, chosen: tuple[int, int]) -> None:
    assert choose_rank(record(workers=2, procs=2), worker, rank) == chosen


@pytest.mark.parametrize(
    ("worker", "rank", "field", "hint"),
    [
        (2, None, "worker", "they are numbered 0 to 1"),
        (None, 4, "rank", "they are numbered 0 to 3"),
        (0, 2, "rank", "it is of worker 1"),
    ],
)
def test_a_rank_that_is_none(worker: int | None, rank: int | None, field: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        choose_rank(record(workers=2, procs=2), worker, rank)
    assert (caught.value.field, caught.value.hint) == (field, hint)


def test_a_run_without_a_place_has_no_rank() -> None:
    with pytest.raises(Unavailable, match="run 'fm' has not started"):
        choose_rank(record(started=False), None, None)


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ([], "has no pod"),
        ([{"phase": "Pending"}], "does not run yet"),
        ([{"phase": "Succeeded"}], "has ended"),
        ([{"phase": "Pending", "leaving": True}], "is about to end"),
    ],
)
def test_a_worker_without_a_running_pod(pods: list[dict[str, object]], problem: str) -> None:
    objects = [pod(number, **about) for number, about in enumerate(pods)]  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match=f"worker 0 of run 'fm' {problem}"):
        running_pod(objects, "fm", 0)


def test_the_pod_that_runs_in_a_worker_s_place() -> None:
    objects = [pod(0, phase="Failed"), pod(1, phase="Running")]
    assert running_pod(objects, "fm", 0) == "fm-0-1"


def pod(number: int, *, phase: str, leaving: bool = False) -> Pod:
    state = {"running": {}} if phase == "Running" else {}
    found = {
        "metadata": {
            "name": f"fm-0-{number}",
            "creationTimestamp": f"2026-01-01T00:00:0{number}Z",
            "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
            "labels": {},
            **({"deletionTimestamp": "2026-01-01T00:01:00Z"} if leaving else {}),
        },
        "status": {"phase": phase, "containerStatuses": [{"name": "worker", "state": state}]},
    }
    return as_pod(found)
