"""A command that calls torchrun by itself, perhaps in a script of its own: it is started once per worker.

It finds what Kubeflow's controller sets in the pods of a PyTorchJob: torchrun's own variables (PET_*), and
those of `torch.distributed`, in which RANK is the worker's number, since torchrun gives every process a rank
of its own. With one process per worker, a script that needs no torchrun finds its rank there as well."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.frameworks.training import ranks_of, training, workers_of
from echelon.model.plan import Launch
from echelon.model.world import World


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """The first worker listens, at an address and a port that are the same in all of these variables."""
    here, trained = world.groups[group], training(world)
    if here not in trained.groups:
        return Launch(argv=tuple(argv))
    wiring = {
        "MASTER_ADDR": "{address:0}",
        "MASTER_PORT": "{port:0}",
        "RANK": "{worker}",
        "WORLD_SIZE": ranks_of(trained),
        "PET_MASTER_ADDR": "{address:0}",
        "PET_MASTER_PORT": "{port:0}",
        "PET_NODE_RANK": "{worker}",
        "PET_NNODES": workers_of(trained),
        "PET_NPROC_PER_NODE": str(here.procs),
        "PET_RDZV_ENDPOINT": "{address:0}:{port:0}",
        "TORCHELASTIC_ERROR_FILE": "{error_file}",
    }
    return Launch(argv=tuple(argv), per="worker", wiring=wiring, ports="first")
