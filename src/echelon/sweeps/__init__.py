"""A sweep: one script with many values of its parameters, as a run that is made of runs.

The modules::

    spaces.py       from what a user writes of the parameters to the trials, and to the job of each: pure
    request.py      what is asked of a sweep, from a job file and the command line: pure
    search.py       trials whose values Optuna's sampler chooses one after the other
    kept.py         the folder of a sweep: what was asked for, the shipped code, the table of trials
    objective.py    what a trial has reached, and which are behind the others: pure
    trials.py       the executor's work: what a trial runs, and what has become of it
    starting.py     what `echelon sweep` calls
    calling.py      `echelon.sweep`
    __main__.py     the executor, the program of the sweep's own run"""
