"""Runs cells in fresh processes that begin at once: a server imports what takes long, and forks for each.

    python forking.py plain    whole notebooks, by IPython
    python forking.py step     steps, by the real program of a step

Each line on standard input is a request, each on standard output its answer. It imports nothing of echelon
but the files that a step's process has, so that a step finds no module that it has not imported itself."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def serve(kind: str) -> None:
    """Answer requests until there are no more."""
    if kind == "plain":
        from IPython.core.interactiveshell import InteractiveShell  # noqa: F401
    else:
        from echelon.notebook.beside import step  # noqa: F401
    import numpy  # noqa: F401, ICN001

    run = {"plain": run_plain, "step": run_step}[kind]
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _leave(run, request)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _leave(run: Any, request: dict[str, Any]) -> None:
    code = 99
    try:
        for stream, number in (("out", 1), ("err", 2)):
            descriptor = os.open(request[stream], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(descriptor, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        code = run(request)
    except BaseException:  # noqa: BLE001 - it is told in the file
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_step(request: dict[str, Any]) -> int:
    """A step as `step.py` in the pipeline's program runs it."""
    from echelon.notebook.beside.step import main

    for name in [name for name in sys.modules if name.partition(".")[0] == "echelon"]:
        del sys.modules[name]
    sys.path[:] = request["path"] or sys.path
    return main(request["specification"])


def run_plain(request: dict[str, Any]) -> int:
    """All cells in one process, as a notebook does it. The code is the number of the cell that failed."""
    from IPython.core.interactiveshell import InteractiveShell

    sys.path.insert(0, str(Path.cwd()))
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False  # type: ignore[union-attr]
    shell.colors = "nocolor"
    for number, text in enumerate(request["cells"], 1):
        result = shell.run_cell(text, store_history=False)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            with Path(os.environ["NOTES"]).open("a") as notes:
                notes.write(f"{type(error).__name__} in cell {number}\n")
            return number
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
