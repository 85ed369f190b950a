"""Upkeep: what a run in a cluster needs done to it from outside.

`decisions` decides from a view of the run, pure; `tend` does it, and holds the tender claim."""
