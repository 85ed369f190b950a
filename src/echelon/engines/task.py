"""The task of a run's agents: a plan as `echelon.agent.task` reads it. Pure.

Each engine gives the paths in its workers and how long they wait; what the ranks run is the same
everywhere, and is written here once."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from echelon import __version__
from echelon.agent.task import SCHEMA, START_RANK
from echelon.model.job import Job
from echelon.model.meaning import JOB_FIELDS
from echelon.model.plan import Plan
from echelon.model.run import Record
from echelon.model.world import sizes

HEARTBEAT = 1.0
LOST_AFTER = 10.0


def shown_command(argv: Sequence[str], *, code: str, output: str, run: str) -> str:
    """A launch's command for a person to read: what the agents fill in as values, or as words."""
    values = {"{code}": code, "{output}": output, "{run}": run}
    words = []
    for word in argv:
        filled = word
        for placeholder, value in values.items():
            filled = filled.replace(placeholder, value)
        words.append("<echelon's start of a rank>" if word == START_RANK else shlex.quote(filled))
    return " ".join(words)


def _of_agents(job: Job) -> dict[str, Any]:
    """The settings that the agents act on, as fields of the Job."""
    found = {each.at: getattr(job, each.at) for each in JOB_FIELDS if each.agent}
    return {name: value for name, value in found.items() if value is not None}


def make_task(
    record: Record,
    plan: Plan,
    *,
    code: str,
    output: str,
    logs: str,
    reports: str,
    secret: str,
    leader: tuple[str, int],
    bundle: Mapping[str, Any] | None,
    join_timeout: float,
    project: bool,
    interactive: bool = False,
    grace: float | None = None,
    hidden: Sequence[str] = (),
    **more: object,
) -> dict[str, Any]:
    """The task that all agents of a run read.

    `code` is the folder that `{code}` means, and with `project` also where functions find their project.
    `join_timeout` is how long workers wait for their leader, and it for them; `grace` how long ranks have
    from SIGTERM to SIGKILL, where that is not what the job asks for. `hidden` are variables that,
    like secrets, are written to no file. `more` is what only one engine's agents read."""
    job = record.job
    secrets = [each.name for each in job.secrets]
    return {
        "schema": SCHEMA,
        "version": __version__,
        "run": job.name,
        "groups": [
            {
                "role": group.role,
                "workers": group.workers,
                "procs": group.procs,
                "essential": group.essential,
                "launch": {
                    "argv": [word.replace("{code}", code) for word in launch.argv],
                    "per": launch.per,
                    "until": launch.until,
                    "wiring": dict(launch.wiring),
                    "ports": launch.ports,
                    "if_importable": {name: dict(wiring) for name, wiring in launch.if_importable.items()},
                    "env": dict(launch.env),
                    "files": dict(launch.files),
                    "threads": threads,
                },
            }
            for group, launch, threads in zip(plan.world.groups, plan.launches, plan.threads, strict=True)
        ],
        "env": {**job.env, "ECHELON_PROJECT": code} if project else dict(job.env),
        "cwd": job.cwd.replace("{code}", code),
        "output": output,
        "logs": logs,
        "reports": reports,
        "secret": secret,
        "leader": {"host": leader[0], "port": leader[1]},
        **_of_agents(job),
        **({"least": fewest[0]} if (fewest := sizes(plan.world)) is not None else {}),
        **({"earlier": job.earlier} if job.earlier else {}),
        **({} if grace is None else {"grace": grace}),
        "join_timeout": join_timeout,
        "heartbeat": HEARTBEAT,
        "lost_after": LOST_AFTER,
        "interactive": interactive,
        "bundle": None if bundle is None else dict(bundle),
        **({"hidden": [*secrets, *hidden]} if secrets or hidden else {}),
        **more,
    }
