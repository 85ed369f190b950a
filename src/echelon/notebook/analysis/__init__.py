"""What a notebook means, before anything runs: its cells, tags and steps, and the variables between them.
Pure.

The modules, as they build on each other::

    cells.py        an .ipynb file as values; writing tags to it
    tags.py         Kale's tags and ours, as values; what a form says of a cell, as tags
    magics.py       magics and `!` commands as plain Python, or refused
    parameters.py   the constants that a run may replace
    steps.py        cells gathered to steps
    flow.py         which names a step's code needs, binds and changes; those that one cell alone needs
    dataflow.py     which step each step gets its variables from
    unlike.py       what steps do unlike a plain run of all cells, so far as the text shows it; names that
                    share memory where they are made, and would be copies in later steps
    pipeline.py     all of it together: a notebook as a Pipeline
"""
