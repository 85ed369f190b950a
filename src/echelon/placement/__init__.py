"""Who sits where: from what a job asks and a cluster has to a placement, or the reason why there is none."""

from echelon.placement.place import NoRoom, place

__all__ = ["NoRoom", "place"]
