"""The testbed's fixtures, for the tests of the testbed itself and of what the design relies on."""

from __future__ import annotations

from testbed.fixtures import (
    api_outage,
    audit,
    cluster,
    fake_nodes,
    give_gpus,
    image,
    namespace,
    own_cluster,
    real_nodes,
    spare_node,
    turn,
    user,
)

__all__ = [
    "api_outage",
    "audit",
    "cluster",
    "fake_nodes",
    "give_gpus",
    "image",
    "namespace",
    "own_cluster",
    "real_nodes",
    "spare_node",
    "turn",
    "user",
]
