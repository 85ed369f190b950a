"""Notebooks as pipelines: tagged cells become steps, and each step is a run of its own.

The modules, as they build on each other::

    cells.py        an .ipynb file as values; writing tags to it
    tags.py         Kale's tags and ours, as values
    magics.py       magics and `!` commands as plain Python, or refused
    parameters.py   the constants that a run may replace
    steps.py        cells gathered to steps
    flow.py         which names a step's code needs, binds and changes
    dataflow.py     which step each step gets its variables from
    pipeline.py     all of it together: a notebook as a Pipeline
    drawing.py      a pipeline as text, Mermaid and SVG
    beside/         what runs in a step's process: it stands alone, on Python 3.8
    folder.py       a pipeline run's folder, and its record
    program.py      what a step's process is given
    cache.py        results of steps from earlier runs
    execute.py      the steps as runs, in parallel by the graph
    report.py       the executed notebook, as .ipynb and HTML
    export/         a pipeline for other engines
    running.py      from the file to a pipeline run that is over
"""
