"""Whether the cluster adds nodes for pods that find none, as far as a user can see.

An autoscaler acts on pods that wait; Jobs that are suspended have none. And nodes that it would add are in no
list. So a run that fits no node now is started there at once, and waits with its pods."""

from __future__ import annotations

from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.errors import Denied

_STATUS = "cluster-autoscaler-status"  # a ConfigMap that the cluster autoscaler renews
_KARPENTER = "/apis/karpenter.sh"


def adds_nodes(api: Api) -> bool:
    """Whether an autoscaler is known to be there; False where that may not be read."""
    try:
        if api.exists("ConfigMap", _STATUS, namespace="kube-system"):
            return True
    except Denied:
        pass
    try:
        api.raw(_KARPENTER)
    except (NotThere, Denied):
        return False
    return True
