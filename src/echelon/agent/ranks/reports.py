"""Progress that ranks report in the way of Kubeflow's jobs: HTTP, served on this machine for its own ranks.

Kubeflow's callback for Hugging Face and its `update_trainjob_status` send `{"trainerStatus": {...}}` to a URL
of the environment, with a token from a file, every five seconds at most. A report becomes the state of a bar
of its rank, one line such as `step 41/100 ETA 0:59 loss=0.53`, so that every reader of output sees it."""

from __future__ import annotations

import json
import os
import re
import socket
from functools import partial

from echelon.agent.address import LOOPBACK
from echelon.agent.loop import READ, Loop, accepted

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

URL = "KUBEFLOW_TRAINER_SERVER_URL"
_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
_PATIENCE = 5.0  # seconds that a client has for its request, as long as it waits for the answer
_MOST_CLIENTS = 64  # at a time; one more drops the oldest
_MOST_HEAD = 8192  # bytes
_MOST_BODY = 256 * 1024  # bytes
_MOST_SHOWN = 32  # metrics in a line
_PLACE = ("current_step", "total_steps", "current_epoch")  # metrics that say where the training stands
_NAME = re.compile(r"[A-Za-z][\w./@-]{0,63}", re.ASCII)
_COUNT = re.compile(r"\d{1,15}", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,4})?|[+-]?(?:nan|inf)", re.ASCII
)
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 413: "Payload Too Large"}


class Reports:
    """Listens at once, until the agent ends; `on_report(rank, line)` is called for each report."""

    def __init__(self, loop: Loop, folder: str, worker: int, on_report: Callable[[int, str], object]) -> None:
        self._loop = loop
        self._on_report = on_report
        self._token = os.urandom(16).hex()
        self._file = os.path.join(folder, "reports-token-%d" % worker)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self._token)
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self._listener.setblocking(False)
        self._port: int = self._listener.getsockname()[1]
        self._clients: dict[socket.socket, bytearray] = {}
        loop.watch(self._listener, READ, self._on_connection)

    def variables(self, rank: int) -> dict[str, str]:
        """What the rank of that number finds in its environment."""
        return {URL: "http://%s:%d/ranks/%d" % (LOOPBACK, self._port, rank), _TOKEN: self._file}

    def _on_connection(self, _events: int) -> None:
        for sock in accepted(self._listener):
            if len(self._clients) >= _MOST_CLIENTS:
                self._drop(next(iter(self._clients)))
            sock.setblocking(False)
            self._clients[sock] = bytearray()
            self._loop.watch(sock, READ, partial(self._on_ready, sock))
            self._loop.call_later(_PATIENCE, partial(self._drop, sock))

    def _drop(self, sock: socket.socket) -> None:
        if self._clients.pop(sock, None) is not None:
            self._loop.forget(sock)
            sock.close()

    def _on_ready(self, sock: socket.socket, _events: int) -> None:
        try:
            data = sock.recv(64 * 1024)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
            return
        self._clients[sock] += data
        status = self._take(bytes(self._clients[sock]))
        if status is not None:
            head = "HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            try:
                sock.send((head % (status, _REASONS[status])).encode())
            except OSError:
                pass
            self._drop(sock)

    def _take(self, data: bytes) -> int | None:
        """Carry out a request; returns its status, None while it is not whole."""
        head, end, body = data.partition(b"\r\n\r\n")
        if not end:
            return 413 if len(data) > _MOST_HEAD else None
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
        import hmac  # it loads OpenSSL, which most runs do not need here

        if not hmac.compare_digest(
            fields.get("authorization", "").encode(), b"Bearer " + self._token.encode()
        ):
            return 401
        asked = re.fullmatch(r"POST /ranks/(\d{1,9}) HTTP/1\.[01]", first)
        size = fields.get("content-length", "")
        if asked is None or not _COUNT.fullmatch(size):
            return 400
        if int(size) > _MOST_BODY:
            return 413
        if len(body) < int(size):
            return None
        line = read(body[: int(size)])
        if line is None:
            return 400
        if line:
            self._on_report(int(asked[1]), line)
        return 200


def read(body: bytes) -> str | None:
    """A report as a line that says how far the training is; "" if it says nothing, None if it is none."""
    try:
        status = json.loads(body)["trainerStatus"]
        percent, left = (status.get(name) for name in ("progressPercentage", "estimatedRemainingSeconds"))
        given = {str(each["name"]): str(each["value"]) for each in status.get("metrics") or ()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    step, steps, epoch = (given.pop(name, "") for name in _PLACE)
    words = []
    if _COUNT.fullmatch(step) and _COUNT.fullmatch(steps) and int(steps):
        words.append("step %s/%s" % (step, steps))
        if _is_count(left):
            words.append("ETA %s" % _clock(left))
    elif _is_count(percent) and percent <= 100:
        # As a bar of rich, of which a share alone can be read.
        words.append("%s╺ %d%%" % ("━" * (percent // 5), percent))
        if _is_count(left):
            words.append(_clock(left))
    if not words and _NUMBER.fullmatch(epoch):  # else it is a figure among others: steps are counted over all
        words.append("epoch=%s" % epoch)
    for name, value in list(given.items())[:_MOST_SHOWN]:
        if _NAME.fullmatch(name) and name != "epoch" and _NUMBER.fullmatch(value):
            words.append("%s=%.6g" % (name, float(value)))
    return " ".join(words)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 10**9


def _clock(seconds: int) -> str:
    return "%d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
