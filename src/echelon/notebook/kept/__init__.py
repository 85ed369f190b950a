"""What is kept of a pipeline run.

The modules, as they build on each other::

    volume.py       the volume that its steps share in a cluster
    folder.py       its folder, and its record
    cache.py        results of steps from earlier runs
    report.py       the executed notebook, as .ipynb and HTML, its cells as Jupyter shows them
"""
