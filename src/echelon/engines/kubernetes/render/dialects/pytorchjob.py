"""Workers as a PyTorchJob: worker 0 is the Master, all others are Workers.

Its controller sets MASTER_ADDR, RANK, PET_* and others as variables of the container; what the plan's launch
sets for a rank goes over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes.render.dialects.kubeflow import Replicated

if TYPE_CHECKING:
    from echelon.model.plan import Plan


def _processes(plan: Plan) -> dict[str, Any]:
    """What torchrun in a command would find as PET_NPROC_PER_NODE."""
    return {"nprocPerNode": str(plan.world.groups[0].procs)}


DIALECT = Replicated(
    kind="PyTorchJob",
    specs="pytorchReplicaSpecs",
    container="pytorch",
    types={"chief": "Master", "worker": "Worker"},
    lead="Master",
    more=_processes,
)
