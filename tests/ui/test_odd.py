"""The dashboard in a real browser where pages are usually not tried: `tests/ui/odd.py` has the visits."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.ui.chromium import start_visitor, the_chromium
from tests.ui.client import Client, engine_with, training
from tests.ui.test_browser import ended, shots, tell

from echelon.engines.base import Engine
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.handle import Run
from echelon.model.engine.traits import Where
from echelon.model.job import Job
from echelon.model.run import RunRef
from echelon.preparation.prepare import Prepared
from echelon.resuming import resume
from echelon.submit import submit

__all__ = ["shots"]
Serve = Callable[..., Client]
Visit = Callable[..., None]


@pytest.fixture
def visit(serve: Serve, tmp_path: Path, shots: Path) -> Visit:
    """Let a visitor look at an engine; `meanwhile` is done when it says so."""

    def go(engine: Engine, name: str, meanwhile: Callable[[], object] | None = None) -> None:
        chromium, said = the_chromium(), tmp_path / "said"
        address = serve(engine).server.address
        with said.open("w") as out:
            visitor = start_visitor("odd", chromium, address, shots, name, out=out)
            with ended(visitor):
                if meanwhile is not None:
                    wait_until(lambda: said.read_text() or visitor.poll() is not None, "the visitor to look")
                    if visitor.poll() is None:
                        meanwhile()
                    tell(visitor, "")
                assert visitor.wait(2 * PATIENCE) == 0, said.read_text()  # its own patience ends before

    return go


def start(engine: MemoryEngine, name: str, script: str, **more: Any) -> None:
    job = Job(name=name, script=script, framework="plain", **more)
    submit(Prepared(job=job), engine, stays=False)


def test_metrics_beyond_those_that_are_drawn_are_told_and_found(visit: Visit) -> None:
    lines = [" ".join(["step=1", *(f"layer{number}={number / 7:.3f}" for number in range(130))])]
    visit(engine_with(many=Act(lines=tuple(lines))), "metrics")


def test_whatever_the_fragment_says_the_page_answers(visit: Visit) -> None:
    visit(engine_with(fm=training), "fragments")


def test_the_heading_names_the_cluster(visit: Visit) -> None:
    engine = engine_with(fm=training)
    engine.where = Where(context="dev", namespace="team-a")
    visit(engine, "place")


@pytest.mark.slow
def test_a_run_is_removed_while_a_page_shows_it(visit: Visit) -> None:
    engine = engine_with(fm=training)
    engine._programs["other.py"] = Act(lines=("another one",), lasts=True)
    visit(engine, "removed", lambda: start(engine, "fm", "other.py", results="elsewhere"))


@pytest.mark.slow
def test_a_run_is_resumed_while_a_page_shows_it(visit: Visit) -> None:
    engine = engine_with(fm=Act(lines=("step=3 loss=0.3",), error="ValueError: no luck"))

    def again() -> None:
        engine._programs["fm.py"] = Act(lines=("step=7 loss=0.7",), lasts=True)
        ref = RunRef(engine="memory", name="fm")
        resume(ref, engine, Run(ref, engine).status())

    visit(engine, "resumed", again)


@pytest.mark.slow
def test_a_connection_that_died_without_an_end_is_made_again(visit: Visit) -> None:
    engine = engine_with(fm=Act(lines=("hello",), lasts=True))
    visit(engine, "silent", lambda: engine.stop(RunRef(engine="memory", name="fm")))


@pytest.mark.slow
def test_long_names_long_lines_and_a_thousand_ranks_fit(visit: Visit) -> None:
    def wide(rank: int, _restart: int) -> Act:
        return Act(lines=(f"rank {rank} is here",), lasts=True)

    engine = MemoryEngine({"long.py": Act(lines=("x" * 16_000,), lasts=True), "wide.py": wide})
    start(engine, "n" * 40, "long.py")
    start(engine, "wide", "wide.py", workers=100, procs=10)
    visit(engine, "long")


@pytest.mark.slow
def test_times_are_the_browsers_own(visit: Visit) -> None:
    engine = MemoryEngine({"old.py": training, "fm.py": training})
    now = engine._clock
    engine._clock = float(calendar.timegm((2001, 2, 3, 3, 35, 6)))
    start(engine, "old", "old.py")
    engine._clock = now
    start(engine, "fm", "fm.py")
    visit(engine, "zones")


def test_every_page_can_be_read_and_used_by_everybody(visit: Visit) -> None:
    failing = Act(lines=("step=1 loss=2.5", "Traceback"), error="ValueError: no luck")
    engine = engine_with(fm=training, bad=failing)
    visit(engine, "audit")
