"""Ports of a worker's pod on this machine, through the API server: TensorBoard, a debugger.

Each connection to the local port is one to the pod. A worker that is replaced is found again with the next
connection; the end of the run ends the forwarding."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from echelon.engines.abilities import PortPair, choose_rank
from echelon.engines.kubernetes.abilities.shell import running_pod
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.forward import PortConnection
from echelon.engines.kubernetes.follow.view import pods_of, read_record
from echelon.engines.kubernetes.state import workers
from echelon.errors import EchelonError, InvalidJob, Unavailable
from echelon.model.run import RunRef

_LOOK = 5.0  # seconds between two looks whether the worker is still there
_PIECE = 64 * 1024
_LAST_WORDS = 2.0  # seconds of silence after which a connection whose client has finished writing is closed


class PodPorts:
    """Ports of workers of a cluster's runs."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def forward(
        self, ref: RunRef, pairs: Sequence[PortPair], *, worker: int, tell: Callable[[str], object]
    ) -> None:
        """Listen here and pass connections on, until the worker has ended for good."""
        api = self._connect()
        stored = read_record(api, ref)
        number = choose_rank(stored.run, worker, None).worker
        pod = running_pod(pods_of(api, stored), ref.name, number)

        def opened(local: int, remote: int) -> None:
            tell(f"localhost:{local} is port {remote} of worker {number} of {ref.name}; Ctrl-C ends it")

        pass_on(api, pairs, pod, partial(_present_pod, api, ref, number), opened=opened, tell=tell)


def pass_on(
    api: Api,
    pairs: Sequence[PortPair],
    pod: str,
    present: Callable[[str], str],
    *,
    opened: Callable[[int, int], object],
    tell: Callable[[str], object],
) -> None:
    """Listen here and pass connections on to a pod until `present` raises: it is asked every few seconds for
    the pod that stands for the one before. `opened` gets each local port, with the pod's; `tell`, once each,
    what goes wrong with connections.
    """
    told: set[str] = set()

    def tell_once(text: str) -> None:
        if text not in told:
            told.add(text)
            tell(text)

    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for pair in pairs:
            listener = stack.enter_context(_listen(pair))
            selector.register(listener, selectors.EVENT_READ, pair.remote)
            opened(listener.getsockname()[1], pair.remote)
        looked = time.monotonic()
        while True:
            for key, _ in selector.select(_LOOK):
                assert isinstance(key.fileobj, socket.socket)
                connection, _address = key.fileobj.accept()
                serve = _Serving(api, pod, key.data, connection, tell_once)
                threading.Thread(target=serve.run, name="forward", daemon=True).start()
            if time.monotonic() - looked >= _LOOK:
                looked = time.monotonic()
                pod = present(pod)


def _listen(pair: PortPair) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", pair.local))
    except OSError as error:
        hint = f"{pair.remote + 1}:{pair.remote} takes another local port, :{pair.remote} any that is free"
        why = error.strerror or str(error)
        raise InvalidJob("port", pair.local, f"cannot be opened here: {why}", hint=hint) from None


def _present_pod(api: Api, ref: RunRef, worker: int, before: str) -> str:
    """The worker's pod; while it is replaced, the one before. Unavailable once it has ended for good."""
    try:
        pods = pods_of(api, read_record(api, ref))
    except Unavailable:
        raise
    except EchelonError:  # an API server that is away for a while
        return before
    try:
        return running_pod(pods, ref.name, worker)
    except Unavailable:
        mine = workers.pods_by_worker(pods).get(worker, [])
        if not mine or (workers.has_ended(mine[-1]) and workers.loss_of(mine[-1]) is None):
            raise
        return before


class _Serving:
    """One connection from here to the pod, in a thread of its own and one for the other direction."""

    def __init__(
        self, api: Api, pod: str, port: int, local: socket.socket, tell: Callable[[str], object]
    ) -> None:
        self._api = api
        self._pod = pod
        self._port = port
        self._local = local
        self._tell = tell
        self._finished = threading.Event()  # the local client writes no more

    def run(self) -> None:
        """Pass bytes on until either side has ended."""
        try:
            with self._local, contextlib.ExitStack() as stack:
                stack.callback(self._end)
                remote = stack.enter_context(self._api.port(self._pod, self._port))
                sending = threading.Thread(target=self._send, args=(remote,), name="forward", daemon=True)
                sending.start()
                self._receive(remote)
        except EchelonError as error:
            self._tell(f"port {self._port}: {error}")
        except OSError:
            return  # the local client has gone

    def _end(self) -> None:
        """Wake the thread that reads from the local client: closing alone does not, and sends no end."""
        with contextlib.suppress(OSError):
            self._local.shutdown(socket.SHUT_RDWR)

    def _send(self, remote: PortConnection) -> None:
        with contextlib.suppress(OSError, EchelonError):
            while data := self._local.recv(_PIECE):
                remote.write(data)
        self._finished.set()

    def _receive(self, remote: PortConnection) -> None:
        while True:
            try:
                found = remote.read(_LAST_WORDS)
            except TimeoutError:
                if self._finished.is_set():
                    return
                continue
            if found is None:
                return
            self._local.sendall(found[1])
