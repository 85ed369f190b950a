"""XGBoost: the place of the tracker over which its collective begins, and each rank's number in it.

The library reads no variable, and only it speaks its tracker's protocol: the script starts a `RabitTracker`
on rank 0, at the address and port that the agents have found for it, and passes the variables on as arguments
on every rank. Those of `torch.distributed` have the same in the words of Kubeflow's XGBoostJob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from echelon.frameworks.torch import launch_ranks
from echelon.frameworks.training import ROLES, ranks_of, training
from echelon.model.plan import Launch
from echelon.model.world import World


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """Every rank is started. A chief is the first of them; other roles are not part of it."""
    base = launch_ranks(argv, world, group)
    if world.groups[group].role not in ROLES:
        return base
    wiring = {
        "DMLC_TRACKER_URI": "{address:0}",
        "DMLC_TRACKER_PORT": "{port:0}",
        "DMLC_TASK_ID": "{rank}",
        "DMLC_NUM_WORKER": ranks_of(training(world)),
    }
    return replace(base, wiring={**base.wiring, **wiring})
