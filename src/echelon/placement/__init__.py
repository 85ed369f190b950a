"""Placement: a World and a snapshot of the cluster become seats for all workers, or the reason why not."""

from echelon.placement.place import NoRoom, place

__all__ = ["NoRoom", "place"]
