"""Tagging and running a notebook with buttons: a panel in JupyterLab, and the server extension that it calls.

::

    analysis.py   a notebook as the panel shows it: what each cell is, what does not fit, the graph. Pure
    state.py      a notebook's run: started by the command, and as the panel shows it
    requests.py   what the panel sends. Pure
    handlers.py   the addresses, below /echelon/ of the Jupyter server, and the dashboard for the panel's link
    front/        the panel itself: JavaScript without a build, installed by the wheel where JupyterLab looks

Jupyter calls the two functions below by their names."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "echelon.lab"}]


def _load_jupyter_server_extension(server: Any) -> None:
    from echelon.lab.handlers import add_handlers

    add_handlers(server)
