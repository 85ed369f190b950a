"""The task file of a local run: a plan in the words that agents read."""

from __future__ import annotations

import hashlib

import msgspec

from echelon.agent.task import SCHEMA
from echelon.engines.local import rundir
from echelon.engines.local.rundir import RunDir
from echelon.model.plan import Plan
from echelon.model.run import Record
from echelon.model.world import rank_count

JOIN_TIMEOUT = 60.0
GRACE = 10.0  # seconds that ranks get between SIGTERM and SIGKILL


def write_task(folder: RunDir, record: Record, plan: Plan) -> None:
    """Write the task of a run's agents, and of their supervisor, who adds the port they meet on."""
    code = str(folder.code)
    task = {
        "schema": SCHEMA,
        "run": plan.run,
        "groups": [
            {
                "role": group.role,
                "workers": group.workers,
                "procs": group.procs,
                "essential": group.essential,
                "launch": {
                    "argv": [word.replace("{code}", code) for word in launch.argv],
                    "per": launch.per,
                    "wiring": launch.wiring,
                    "ports": launch.ports,
                    "if_importable": launch.if_importable,
                    "threads": threads,
                },
            }
            for group, launch, threads in zip(plan.world.groups, plan.launches, plan.threads, strict=True)
        ],
        "env": {**plan.env, "ECHELON_PROJECT": code} if record.job.snapshot else plan.env,
        "cwd": record.job.cwd.replace("{code}", code),
        "output": record.results,
        "logs": f"{record.results}/logs",
        "reports": str(folder.path),
        "secret": str(folder.secret),
        "leader": {"host": "127.0.0.1", "port": 0},
        "restarts": plan.restarts,
        "timeout": plan.timeout,
        "grace": GRACE,
        "join_timeout": JOIN_TIMEOUT,
        "interactive": rank_count(plan.world) == 1,
        "bundle": _bundle(folder),
        "gpus": [seat.gpus for seat in plan.placement.seats],
    }
    rundir.write_atomically(folder.task, msgspec.json.encode(task))


def _bundle(folder: RunDir) -> dict[str, str] | None:
    if not folder.bundle.exists():
        return None
    digest = hashlib.sha256(folder.bundle.read_bytes()).hexdigest()
    return {"path": str(folder.bundle), "digest": digest, "target": str(folder.code)}
