"""The steps of a notebook as runs of an engine.

The modules, as they build on each other::

    asking.py       what the tags of a step ask for, as settings of its run
    program.py      what a step's process is given
    places.py       what differs between this machine and a cluster
    pods.py         steps as runs in a cluster
    steps.py        what each step runs, whether an earlier run has its result, what has become of it
    choosing.py     from the engine that a user chose to the place
    running.py      from the file to a run: what `echelon notebook run` calls
    __main__.py     the executor, the program of the pipeline's own run"""
