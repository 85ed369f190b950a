"""Which processors a cluster's nodes have, so that an image fits them unasked; for the command."""

from __future__ import annotations

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.kubeconfig import load_access
from echelon.errors import Denied, Unavailable
from echelon.image.oci import Platform, parse_platform


def cluster_platform(context: str | None, namespace: str | None) -> Platform:
    """The one platform of all nodes that take pods; raises if there are several, or if nobody may know."""
    try:
        nodes = Api(load_access(context, namespace)).list("Node").items
    except Denied as error:
        raise Denied(error.message, hint="say --platform instead, e.g. linux/amd64") from error
    about = [node.get("status", {}).get("nodeInfo", {}) for node in nodes]
    found = {
        f"linux/{each['architecture']}" for each in about if each.get("operatingSystem", "linux") == "linux"
    }
    if len(found) != 1:
        kinds = " and ".join(sorted(found))
        raise Unavailable(
            f"the cluster has nodes of several kinds: {kinds}" if found else "the cluster has no Linux node",
            hint="say which one the image is for: --platform linux/amd64",
        )
    return parse_platform(found.pop())
