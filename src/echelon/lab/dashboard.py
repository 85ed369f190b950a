"""The dashboard from the panel: one for each place that runs are in, in threads of the Jupyter server, so
that they end with it."""

from __future__ import annotations

import threading

from echelon.engines.choose import choose_engine
from echelon.preparation.sources import Target
from echelon.ui import load_server


class Dashboards:
    """Those that were opened."""

    def __init__(self) -> None:
        self._addresses: dict[Target, str] = {}
        self._lock = threading.Lock()

    def address(self, place: Target) -> str:
        """Where the dashboard of a place is, with its token; it is started the first time."""
        with self._lock:
            if place not in self._addresses:
                engine = choose_engine(place.on, context=place.context, namespace=place.namespace)
                server = load_server().Server(engine)
                threading.Thread(target=server.run, name=f"dashboard {place.on}", daemon=True).start()
                self._addresses[place] = server.address
            return self._addresses[place]
