"""Upkeep of runs from outside, as values; `tend.py` acts."""
