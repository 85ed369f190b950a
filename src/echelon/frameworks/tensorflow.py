"""TensorFlow: TF_CONFIG, which names every rank of every role, and which of them this one is.

Parameter servers and the evaluator serve until the workers have ended. Under MultiWorkerMirroredStrategy
`model.fit` fails with Keras 3, so that the older Keras is chosen where it is installed (`tf_keras`)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from echelon.model.plan import Launch
from echelon.model.world import World, rank_count


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """Every rank listens on a port of its own. One rank alone needs no cluster."""
    if rank_count(world) == 1:
        return Launch(argv=tuple(argv))
    if world.groups[group].role == "launcher":
        return Launch(argv=tuple(argv))
    # The evaluator stands outside the cluster that trains, by TensorFlow's own rule.
    roles = dict.fromkeys(each.role for each in world.groups if each.role not in ("evaluator", "launcher"))
    cluster = ", ".join(f"{json.dumps(role)}: {{members:{role}}}" for role in roles)
    task = f'{{"type": {json.dumps(world.groups[group].role)}, "index": {{index}}}}'
    return Launch(
        argv=tuple(argv),
        # "environment" as Kubeflow's controller writes it: programs may look for it.
        wiring={"TF_CONFIG": f'{{"cluster": {{{cluster}}}, "task": {task}, "environment": "cloud"}}'},
        ports="all",
        if_importable={"tf_keras": {"TF_USE_LEGACY_KERAS": "1"}},
    )
