"""The dashboard from the panel: one for this machine and one for the cluster, in threads of the Jupyter
server, so that they end with it."""

from __future__ import annotations

import threading

from echelon.api import engine_at
from echelon.engines.choose import CLUSTER, LOCAL
from echelon.sources import Target
from echelon.ui import load_server


class Dashboards:
    """Those that were opened."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._lock = threading.Lock()

    def address(self, *, in_cluster: bool) -> str:
        """Where the dashboard is, with its token; it is started the first time."""
        place = CLUSTER if in_cluster else LOCAL
        with self._lock:
            if place not in self._addresses:
                server = load_server().Server(engine_at(Target(on=place)))
                threading.Thread(target=server.run, name=f"dashboard {place}", daemon=True).start()
                self._addresses[place] = server.address
            return self._addresses[place]
