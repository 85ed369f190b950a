"""Upkeep of runs from outside, as values; `tend.py` decides and acts."""
