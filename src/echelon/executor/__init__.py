"""Runs as the program of another run, their parent.

The modules::

    execution.py    steps as runs of an engine, each after those that it comes after
    parent.py       the parent: its job, what its executor says of it, and what it is asked

What the steps are, and what is made of their results, is the business of those who use it: notebooks and
sweeps."""
