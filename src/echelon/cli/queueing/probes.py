"""What a kubelet asks of the manager: whether it lives (its rounds go on), and whether they go well."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LONGEST = 120.0  # seconds that a round may take, in a large cluster and with an API server that is slow


class Pulse:
    """When the last round ended, and when the last one that went well."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat = self._well = clock()

    def beat(self, well: bool) -> None:
        """A round has ended."""
        self._beat = self._clock()
        if well:
            self._well = self._beat

    @property
    def lives(self) -> bool:
        """Whether rounds go on."""
        return self._clock() - self._beat < _LONGEST

    @property
    def ready(self) -> bool:
        """Whether they go well."""
        return self._clock() - self._well < _LONGEST


def serve(pulse: Pulse, port: int) -> ThreadingHTTPServer:
    """Answer probes at a port, in a thread, until the process ends; 0 is any free port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer one probe."""
            known = {"/livez": pulse.lives, "/readyz": pulse.ready}
            if self.path not in known:
                self.send_error(404)
                return
            body = b"ok\n" if known[self.path] else b"no\n"
            self.send_response(200 if known[self.path] else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A probe is not worth a line."""

    server = ThreadingHTTPServer(("", port), Answer)
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
    return server
