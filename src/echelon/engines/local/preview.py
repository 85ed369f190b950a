"""What a local run would do, as text for the dry run."""

from __future__ import annotations

import json
import re
from pathlib import Path

from echelon.agent.ranks.launching.roll import PLACEHOLDER
from echelon.engines.task import shown_command
from echelon.model.job import Job
from echelon.model.meaning import lines_of
from echelon.model.plan import Plan
from echelon.model.world import Member, members

_HERE = "127.0.0.1"
_CODE = "<its copy of the code>"
_WORDS = {
    "error_file": "<a file of its own>",
    "file": "<a file that echelon writes>",
    "hosts": "<a file that echelon writes>",
    "interface": "<the network interface>",
    "nodes": "<a file that echelon writes>",
    "port": "<a free port>",
    "rendezvous": "<a word for each start>",
    "ssh": "<echelon's remote shell>",
}


def preview(job: Job, plan: Plan) -> str:
    """Each group's command and variables, and each worker's place. Secrets are named, never shown."""
    results = job.results or f"runs/{job.name}"
    output = str(Path(results).absolute())
    lines = [f"run {job.name} on this machine, framework {job.framework}"]
    lines += [f"working folder {job.cwd.replace('{code}', _CODE)}", f"results in {results}"]
    lines += [f"{title} {text}" for title, text in lines_of(job, in_pods=False)]
    everyone = list(members(plan.world))
    for number, (group, launch) in enumerate(zip(plan.world.groups, plan.launches, strict=True)):
        starts = group.procs if launch.per == "rank" else 1
        where = "on worker 0 alone" if launch.per == "leader" else "each"
        number_of = str(group.workers) if group.least is None else f"{group.least} to {group.workers}"
        lines += ["", f"{number_of} x {group.role}, {starts} process{'es' * (starts != 1)} {where}:"]
        lines.append(f"  {shown_command(launch.argv, code=_CODE, output=output, run=job.name)}")
        variables = {key: _filled(text, number, everyone, group.least) for key, text in launch.wiring.items()}
        variables["OMP_NUM_THREADS"] = f"{plan.threads[number]} (unless your environment has it)"
        own = {**job.env, **launch.env}
        variables |= {
            key: text.replace("{output}", output).replace("{run}", job.name) for key, text in own.items()
        }
        variables.update(dict.fromkeys((each.name for each in job.secrets), "***"))
        lines += [f"    {key}={value}" for key, value in sorted(variables.items())]
    lines.append("")
    for member, seat in zip(everyone, plan.placement.seats, strict=True):
        ranks = (
            f"ranks {member.first_rank}-{member.first_rank + member.procs - 1}"
            if member.procs > 1
            else f"rank {member.first_rank}"
        )
        gpus = f", GPU {', '.join(seat.gpus)}" if seat.gpus else ""
        if not seat.node:
            lines.append(f"worker {member.worker} ({member.role} {member.index}): once there is room")
            continue
        lines.append(f"worker {member.worker} ({member.role} {member.index}): {ranks} on {seat.node}{gpus}")
    return "\n".join(lines) + "\n"


def _filled(text: str, group: int, everyone: list[Member], least: int | None = None) -> str:
    """A variable with what each rank of the group finds in it: the value where it is the same for all and
    known by now, else words. All workers are on this machine. With `least`, their number changes.
    """
    own = [member for member in everyone if member.group == group]
    first, last = own[0], own[-1]
    ranks = _span(first.first_rank, last.first_rank + last.procs - 1)
    of_role = [member for member in everyone if member.role == first.role]
    begin = sum(member.procs for member in of_role if member.worker < first.worker)
    spans = {
        "rank": ranks,
        "rank_here": ranks,
        "ranks": _span((least or len(everyone)) * first.procs, len(everyone) * first.procs),
        "workers": _span(least or len(everyone), len(everyone)),
        "local_rank": _span(0, first.procs - 1),
        "worker": _span(first.worker, last.worker),
        "index": _span(begin, begin + len(own) * first.procs - 1),
    }

    def look_up(match: re.Match[str]) -> str:
        kind, _, which = match[1].partition(":")
        if kind in spans:
            return spans[kind]
        if kind == "address":
            return _HERE
        if kind == "members":
            count = sum(member.procs for member in everyone if member.role == which)
            return json.dumps([f"{_HERE}:<port>"] * count)
        if kind == "ranks_here":
            return which if least is None else spans["ranks"]
        if kind == "machine":
            return "0"
        if kind in ("cross_rank", "cross_size"):
            if which.startswith("workers:"):
                crossed = len({member.worker for member in everyone})
                return str(crossed) if kind == "cross_size" else spans["worker"]
            return "1" if kind == "cross_size" else "0"
        return _WORDS[kind]

    return PLACEHOLDER.sub(look_up, text)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"<{first} to {last}>"
