"""JAX: the variables with which `jax.distributed.initialize()` needs no argument.

JAX reads the coordinator's address from the environment by itself. The number of processes and of this one it
takes only from launchers that it knows; Open MPI is one that it knows by three variables, in every release
and also in pods, before it would ask the API server. `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, which
Kubeflow Trainer sets, and the names without `JAX_`, which its training operator sets, are for scripts that
pass them on.

A worker is one process that drives all its GPUs, unless it is given more; JAX under Open MPI would take one
device for each process, so that the devices are named, too. The variables of PyTorch are there as for any
program: a script that loads its data with it may read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from echelon.frameworks.torch import launch_ranks
from echelon.frameworks.training import ROLES, ranks_of, training
from echelon.model.plan import Launch
from echelon.model.world import Group, World


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """Rank 0 is the coordinator. Other roles than workers are not part of it."""
    here, base = world.groups[group], launch_ranks(argv, world, group)
    if here.role not in ROLES:
        return base
    ranks = ranks_of(training(world))
    wiring = {
        "JAX_COORDINATOR_ADDRESS": "{endpoint:0}",
        "JAX_NUM_PROCESSES": ranks,
        "JAX_PROCESS_ID": "{rank}",
        "COORDINATOR_ADDRESS": "{address:0}",
        "COORDINATOR_PORT": "{port:0}",
        "NUM_PROCESSES": ranks,
        "PROCESS_ID": "{rank}",
        # Its presence alone tells JAX of Open MPI. Empty, it names no daemon to a library of MPI.
        "OMPI_MCA_orte_hnp_uri": "",
        "OMPI_COMM_WORLD_SIZE": ranks,
        "OMPI_COMM_WORLD_RANK": "{rank}",
        "OMPI_COMM_WORLD_LOCAL_RANK": base.wiring["LOCAL_RANK"],
    }
    if here.resources.gpus:
        wiring["JAX_LOCAL_DEVICE_IDS"] = _devices(here)
    return replace(base, wiring={**base.wiring, **wiring})


def _devices(here: Group) -> str:
    """The devices of a process, counted among those of its worker."""
    if 1 < here.procs <= here.resources.gpus:
        return "{local_rank}"
    return ",".join(map(str, range(here.resources.gpus)))
