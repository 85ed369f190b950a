"""One replica of the manager decides at a time: the one that holds and renews a Lease.

Whether another's Lease has expired is judged by how long it has not changed on this process's own clock, so
that clocks which differ do no harm. Each change states the version that it was decided on; of two replicas
that try at once, one gets a conflict. The object is made by `echelon install`: the manager may not create.

A decision over a long queue may take longer than the Lease lasts, so a thread renews it (`Renewal`). A
replica that is stuck for good keeps it only until the kubelet's probe ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Conflict, Object
from echelon.errors import EchelonError
from echelon.values import frozen

LASTS = 15.0  # seconds after its last renewal
_VISIBLE = 2  # so much longer commands see a manager, while one replica takes over from another
_NOBODY = "released"  # a holder is named all the same: commands see that a manager is about to take over


@frozen
class Held:
    """What a Lease says: who holds it, for how long without a renewal, and the last one."""

    holder: str
    lasts: float
    renewed: str
    version: str
    changes: int = 0


def read(obj: Object) -> Held:
    """The Lease in an object; fields that are absent mean that it has no holder."""
    spec = obj.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    lasts, changes = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    return Held(
        holder=str(spec.get("holderIdentity") or ""),
        lasts=lasts / _VISIBLE if isinstance(lasts, int) else LASTS,
        renewed=str(spec.get("renewTime") or ""),
        version=str(obj["metadata"].get("resourceVersion") or ""),
        changes=changes if isinstance(changes, int) else 0,
    )


class Election:
    """This process among the replicas; safe to use from several threads. `clock` counts seconds and never
    goes back.
    """

    def __init__(
        self, api: Api, identity: str, *, lasts: float = LASTS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._identity = identity
        self._lasts = lasts
        self._clock = clock
        self._seen: tuple[Held, float] | None = None  # and when it was first seen so
        self._renewed: float | None = None
        self._lock = threading.Lock()  # one thread at a time renews or releases

    @property
    def leads(self) -> bool:
        """Whether this process may decide now: its last renewal is so recent that no other has taken over."""
        return self._renewed is not None and self._clock() - self._renewed < self._lasts * 2 / 3

    def renew(self) -> bool:
        """Take the Lease if it is free, or renew it, if it is time to; returns whether this process leads."""
        with self._lock:
            return self._renew()

    def keep(self) -> None:
        """Renew the Lease if it is time to, and this process had it when it last looked."""
        with self._lock:
            if self._renewed is not None:
                self._renew()

    def release(self) -> None:
        """Leave the Lease to the other replica, which need not wait until it expires."""
        with self._lock:
            if self._renewed is None:
                return
            self._renewed = None
            with suppress(EchelonError):  # it expires
                found = self._find()
                if found.holder == self._identity:
                    self._write(_NOBODY, found)

    def _renew(self) -> bool:
        if self._renewed is not None and self._clock() - self._renewed < self._lasts / 3:
            return True
        began = self._clock()
        found = self._find()
        if self._seen is None or self._seen[0] != found:
            self._seen = found, began
        if found.holder not in ("", _NOBODY, self._identity) and began - self._seen[1] < found.lasts:
            self._renewed = None
            return False
        try:
            self._write(self._identity, found)
        except Conflict:
            self._renewed = None  # another replica was faster
            return False
        self._renewed = began
        return True

    def _find(self) -> Held:
        return read(self._api.get("Lease", names.MANAGER_LEASE, namespace=names.MANAGER_NAMESPACE))

    def _write(self, holder: str, before: Held) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Object = {"holderIdentity": holder, "renewTime": now}
        spec["leaseDurationSeconds"] = max(1, round(self._lasts * _VISIBLE))
        if holder not in (_NOBODY, before.holder):
            spec |= {"acquireTime": now, "leaseTransitions": before.changes + 1}
        change = {"metadata": {"resourceVersion": before.version}, "spec": spec}
        self._api.patch("Lease", names.MANAGER_LEASE, change, namespace=names.MANAGER_NAMESPACE)


class Renewal:
    """Keeps the Lease that an election has, in a thread, from `begin` to `end`."""

    def __init__(self, election: Election, *, every: float) -> None:
        self._election = election
        self._every = every
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def begin(self) -> None:
        """Start; once is enough."""
        if self._thread.ident is None:
            self._thread.start()

    def end(self) -> None:
        """Renew no more."""
        self._left.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._left.wait(self._every):
            with suppress(EchelonError):  # an outage: the next try may reach the API server
                self._election.keep()
