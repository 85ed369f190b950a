"""From a job to what each of its ranks would find in its environment, the way a real run goes: the plan, the
task file, the agent's filling in.
"""

from __future__ import annotations

from pathlib import Path

from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.launching.roll import Roll
from echelon.agent.task import Task, read_task
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.task import write_task
from echelon.engines.memory.script import one_node
from echelon.model.job import Job
from echelon.model.plan import Placement
from echelon.model.run import Record, RunRef
from echelon.placement import place
from echelon.planning import candidates, make_plan

ADDRESSES = [f"10.0.0.{number}" for number in range(1, 9)]


def task_of(job: Job, folder: Path) -> Task:
    """The task that the agents of a job read."""
    cluster = one_node(gpus=8)
    (candidate,) = candidates(job, cluster)
    placement = place(candidate.world, cluster)
    assert isinstance(placement, Placement)
    plan = make_plan(job, candidate.world, placement, cluster)
    ref = RunRef(engine="local", name=job.name)
    record = Record(ref=ref, job=job, created=0.0, owner="me", results="/results", plan=plan)
    write_task(RunDir(folder), record, plan)
    RunDir(folder).secret.write_text("the run's secret")
    return read_task(str(RunDir(folder).task))


def environments(
    job: Job,
    folder: Path,
    *,
    inherited: dict[str, str] | None = None,
    addresses: list[str] = ADDRESSES,
    importable: set[str] | None = None,
    generation: int = 0,
) -> list[dict[str, str]]:
    """The environment of each process that the agents start. Worker W's Nth port is 100 W + N."""
    task = task_of(job, folder)
    ports = [
        [place.worker * 100 + number + 1 for number in range(launch.ports_needed(task, place))]
        for place in task.places
    ]
    roll = Roll(task, addresses[: len(task.places)], ports)
    return [
        launch.environment(
            dict(inherited or {}),
            task,
            place,
            local,
            generation,
            roll,
            f"/tmp/error-{local}",
            importable or set(),
        )
        for place in task.places
        for local in range(launch.starts(task, place))
    ]
