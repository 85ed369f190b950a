"""The platform of an image that has to fit the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from echelon.errors import Unavailable
from echelon.image.oci import Platform, parse_platform


def choose_platform(found: AbstractSet[str]) -> Platform:
    """The one Linux platform among those of a cluster's nodes; raises if there are several, or none."""
    linux = sorted(each for each in found if each.startswith("linux/"))
    if len(linux) != 1:
        kinds = " and ".join(linux)
        raise Unavailable(
            f"the cluster has nodes of several kinds: {kinds}" if linux else "the cluster has no Linux node",
            hint="say which one the image is for: --platform linux/amd64",
        )
    return parse_platform(linux[0])
