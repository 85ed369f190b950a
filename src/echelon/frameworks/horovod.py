"""Horovod: the variables that its Gloo controller reads, which `horovodrun` would set over SSH.

The ranks find each other over a key-value store that worker 0 serves. Horovod asks for
`http://ADDR:PORT/...`: with a path at the end of ADDR, every question has the word in it that strangers lack.
As with PyTorch, the ranks of a machine are counted together unless each worker has GPUs of its own, which it
counts from 0; a worker is then one of Horovod's hosts."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.frameworks.training import ROLES, ranks_of, training
from echelon.model.plan import Launch
from echelon.model.world import World, rank_count


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """Every rank is started; the end of rank 0, the chief, is the run's. Other roles are not part of it."""
    here = world.groups[group]
    if here.role not in ROLES:
        return Launch(argv=tuple(argv))
    ranks = rank_count(training(world))
    wiring = {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "{address:0}:{port:0}/{rendezvous}",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "{port:0}",
        "HOROVOD_GLOO_IFACE": "{interface}",
        "HOROVOD_RANK": "{rank}",
        "HOROVOD_SIZE": ranks_of(training(world)),
    }
    if here.resources.gpus:
        wiring |= {
            "HOROVOD_HOSTNAME": "worker-{worker}",
            "HOROVOD_LOCAL_RANK": "{local_rank}",
            "HOROVOD_LOCAL_SIZE": str(here.procs),
            "HOROVOD_CROSS_RANK": f"{{cross_rank:workers:{ranks}}}",
            "HOROVOD_CROSS_SIZE": f"{{cross_size:workers:{ranks}}}",
        }
    else:
        wiring |= {
            "HOROVOD_HOSTNAME": f"machine-{{machine:{ranks}}}",
            "HOROVOD_LOCAL_RANK": f"{{rank_here:{ranks}}}",
            "HOROVOD_LOCAL_SIZE": f"{{ranks_here:{ranks}}}",
            "HOROVOD_CROSS_RANK": f"{{cross_rank:{ranks}}}",
            "HOROVOD_CROSS_SIZE": f"{{cross_size:{ranks}}}",
        }
    return Launch(argv=tuple(argv), until="first", wiring=wiring, ports="first")
