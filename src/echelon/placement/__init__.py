"""Who sits where: from what a job asks and what a cluster has to a placement, or to the reason why there is none. Pure."""

from echelon.placement.place import NoRoom, place

__all__ = ["NoRoom", "place"]
