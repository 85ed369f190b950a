"""The dashboard: a web page on the user's own machine. It reads through the same handles as the commands.

`reading` is what pages get; `feed` follows a run once for all pages, and keeps its lines on disk (`spool`).
`safety` says who is let in; `app`, `live` and `server` are the addresses, the WebSocket and the port.
`static/` are the pages."""

from __future__ import annotations

from types import ModuleType


def load_server() -> ModuleType:
    """The module `server`; raises Unavailable where what it needs is not installed."""
    from echelon.errors import Unavailable

    try:
        from echelon.ui import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise Unavailable(
            f"the dashboard needs {error.name}, which is not installed", hint="pip install 'echelon[ui]'"
        ) from None
    return server
