"""Upkeep of runs from outside: decided as values; `tend.py` acts."""
