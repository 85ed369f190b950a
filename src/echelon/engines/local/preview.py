"""What a local run would do, as text for the dry run."""

from __future__ import annotations

import shlex

from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.world import members


def preview(job: Job, plan: Plan) -> str:
    """Each group's command and variables, and each worker's place. Secrets are named, never shown."""
    lines = [f"run {plan.run} on this machine, framework {plan.framework}", f"working folder {job.cwd}"]
    lines.append(f"results in {job.results or f'runs/{plan.run}'}")
    if plan.restarts:
        lines.append(f"up to {plan.restarts} restart{'s' * (plan.restarts != 1)}")
    if plan.timeout is not None:
        lines.append(f"ended after {plan.timeout:g} s")
    if plan.stall is not None:
        lines.append(f"stuck after {plan.stall:g} s without output and computing")
    for number, (group, launch) in enumerate(zip(plan.world.groups, plan.launches, strict=True)):
        starts = group.procs if launch.per == "rank" else 1
        where = "on worker 0 alone" if launch.per == "leader" else "each"
        lines += ["", f"{group.workers} x {group.role}, {starts} process{'es' * (starts != 1)} {where}:"]
        lines.append(f"  {shlex.join(launch.argv)}")
        variables = {
            **launch.wiring,
            "OMP_NUM_THREADS": f"{plan.threads[number]} (unless your environment has it)",
            **plan.env,
            **launch.env,
        }
        variables.update(dict.fromkeys(plan.secrets, "***"))
        lines += [f"    {key}={value}" for key, value in sorted(variables.items())]
    lines.append("")
    for member, seat in zip(members(plan.world), plan.placement.seats, strict=True):
        ranks = (
            f"ranks {member.first_rank}-{member.first_rank + member.procs - 1}"
            if member.procs > 1
            else f"rank {member.first_rank}"
        )
        gpus = f", GPU {', '.join(seat.gpus)}" if seat.gpus else ""
        lines.append(f"worker {member.worker} ({member.role} {member.index}): {ranks} on {seat.node}{gpus}")
    return "\n".join(lines) + "\n"
