"""Train a script or a function on many workers.

import echelon

run = echelon.run("train.py", args=["--epochs", "3"], workers=2)
run.wait(check=True)
"""

__all__ = ["EchelonError", "LogLine", "Run", "RunFailed", "Status", "attach", "run", "runs", "sweep"]
__version__ = "0.1.0"

_HOMES = {
    "EchelonError": "echelon.errors",
    "LogLine": "echelon.model.output.log",
    "Run": "echelon.handle",
    "RunFailed": "echelon.observation.failure",
    "Status": "echelon.model.status",
    "attach": "echelon.api",
    "run": "echelon.api",
    "runs": "echelon.api",
    "sweep": "echelon.sweeps.calling",
}


def __getattr__(name):  # type: ignore[no-untyped-def]  # the agent, on Python 3.8, passes through this file too
    """Import a name when it is first used: `import echelon` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'echelon' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__():  # type: ignore[no-untyped-def]
    return sorted([*globals(), *__all__])


def load_ipython_extension(ipython):  # type: ignore[no-untyped-def]
    """Make `%%echelon` known in a notebook, at `%load_ext echelon`."""
    import importlib

    importlib.import_module("echelon.cli.notebooks.cell").register(ipython)
