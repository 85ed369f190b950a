"""What the suite must know of an engine under test, and small steps that its tests are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import pytest
from testbed.patience import FACTOR
from tests.conftest import wait_until

from echelon.admission import find_plan
from echelon.engines.base import Engine
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.plan import Plan
from echelon.model.resources import Resources
from echelon.model.run import RunRef, opening_status, parse_uri
from echelon.model.status import Status, apply
from echelon.submit import Prepared, submit

PATIENCE = 60.0 * FACTOR  # seconds; only a broken engine takes so long. Not for `wait_until`, which scales


class Harness(Protocol):
    """An engine under test, and what the suite must know of it."""

    engine: Engine
    names_devices: bool  # whether the engine itself says which device is whose

    def job(self, program: str, *, name: str = "the-run", **more: Any) -> Job:
        """A job that runs one of the programs."""
        ...

    def provide_gpus(self, count: int) -> None:
        """From now on the engine has that many GPUs, all of them free."""
        ...

    def read_result(self, results: str, path: str) -> bytes:
        """A result file where it lies, whether the run is still known or not."""
        ...


def start(harness: Harness, program: str, **more: Any) -> Run:
    return submit(Prepared(job=harness.job(program, **more)), harness.engine)


def ref_of(run: Run) -> RunRef:
    return parse_uri(str(run), "no default is needed")


def statuses(run: Run, events: Iterator[Event], engine: Engine) -> Iterator[Status]:
    status = opening_status(engine.read(ref_of(run)))
    for event in events:
        status = apply(status, event)
        yield status


def wait_for_state(harness: Harness, run: Run, state: str) -> Status:
    seen = []
    events = harness.engine.events(ref_of(run), follow=True, timeout=PATIENCE)
    for status in statuses(run, events, harness.engine):
        if status.state == state:
            return status
        seen.append(status.state)
    pytest.fail(f"{run} was never {state}, but {seen}")


def wait_for_lines(run: Run, text: str, count: int) -> None:
    def there() -> bool:
        return [line.text for line in run.logs()].count(text) >= count

    wait_until(there, f"{count} times {text!r}")


def check_unchanged(run: Run, status: Status) -> None:
    """The status of a run that is over stays as it is; only when its workers had left may be known later."""
    now = run.status()
    assert now == (status if status.released is not None else replace(status, released=now.released))


def kinds(engine: Engine, ref: RunRef) -> list[str]:
    return [event.kind for event in engine.events(ref)]


def by_rank(lines: Iterator[LogLine]) -> dict[tuple[int | None, str], list[LogLine]]:
    """Ranks write at the same time: only the order of each stream of each is certain."""
    streams: dict[tuple[int | None, str], list[LogLine]] = {}
    for line in lines:
        streams.setdefault((line.rank, line.stream), []).append(line)
    return streams


def plan_of(job: Job, engine: Engine) -> Plan:
    plan = find_plan(job, engine)
    assert isinstance(plan, Plan)
    return plan


def gpus(count: int) -> Resources:
    return Resources(gpus=count)
