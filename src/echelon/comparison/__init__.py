"""Runs beside each other: what differs in what they were asked to do, in their code, and in what they have
measured.

The modules::

    facts.py        what a run was asked to do, each thing with its name: pure
    code.py         shipped archives beside each other: pure
    measured.py     where metrics part, and where they end: pure
    comparing.py    from runs to all of that: what `echelon compare` and the dashboard call"""
