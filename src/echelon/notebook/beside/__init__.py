"""What runs in the process of a step. It stands alone: standard library, Python 3.8, and nothing of echelon
but the codecs, since the notebook's Python need not have echelon installed.

    step.py       from the specification of a step to its variables and outputs
    store.py      variables between steps, written so that they are whole, and verified
    pickling.py   what is not plain data, authenticated with the pipeline run's own secret
    alike.py      whether a value came back as it was; what two values share, such as the memory of arrays
    changes.py    which variables a step has changed
    state.py      what a process has beside variables: random numbers, environment, attributes of modules
    options.py    options that libraries keep for the whole process
    keras.py      models and histories of Keras
    outputs.py    what cells print and show, for the executed notebook
    shell.py      what magics and `!` commands became
    sources.py    which step each variable comes from, of those that have run
    parameters.py the value that a parameter's text means
    task.py       a step in a pod of another engine
    jobs.py       the workers of a distributed step there, as an Indexed Job
    pod.py        a step in a pod of echelon's
    _echelon_figures.py  a backend of matplotlib that keeps figures for the executed notebook
"""
