"""Leases: one process at a time admits a run of a namespace.

A Lease is held until it is released or was not renewed for its duration, by the clocks of two machines. So it
avoids most collisions and excludes none: admission itself is a patch with a precondition, and a gang that is
not whole in time is rolled back. Where the user may not write Leases, that alone decides."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from echelon.engines import machine
from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Conflict, Damaged, NotThere, Object
from echelon.engines.kubernetes.fields import moment
from echelon.errors import Denied, EchelonError

ADMISSION_LASTS = 15.0  # seconds, of which an admission takes one
_PATIENCE = 20.0  # seconds for a Lease that other processes hold, one after another
_LOOK = 0.1


def is_free(lease: shapes.Lease, holder: str, now: float) -> bool:
    """Whether a process may take a Lease: it has no holder, is its own, a dead one's, or expired. Pure."""
    theirs = lease.spec.holder_identity
    return not theirs or theirs == holder or machine.is_dead_process(theirs) or not is_fresh(lease, now)


def is_fresh(lease: shapes.Lease, now: float) -> bool:
    """Whether a Lease has a holder that renewed it within its duration. Pure."""
    renewed, lasts = moment(lease.spec.renew_time), lease.spec.lease_duration_seconds
    if not lease.spec.holder_identity or renewed is None or lasts is None:
        return False
    return now < renewed + lasts


def taken(name: str, holder: str, lasts: float, now: float) -> Object:
    """A Lease that a process has from now on. Pure."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": int(lasts), "renewTime": at}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": {names.MANAGED_BY: "echelon"}},
        "spec": {**spec, "acquireTime": at},
    }


def take(api: Api, name: str, holder: str, lasts: float) -> bool:
    """Take or renew a Lease; False while another process has it. Raises Denied without the right to."""
    wanted = taken(name, holder, lasts, time.time())
    found = api.find_shape("Lease", shapes.Lease, name)
    try:
        if found is None:
            api.create(wanted)
            return True
        if not is_free(found, holder, time.time()):
            return False
        change = {
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "spec": wanted["spec"],
        }
        api.patch("Lease", name, change)
    except (AlreadyThere, Conflict, NotThere):
        return False
    return True


def release(api: Api, name: str, holder: str) -> None:
    """Give a Lease up, if this process still has it."""
    with suppress(EchelonError):
        found = api.find_shape("Lease", shapes.Lease, name)
        if found is not None and found.spec.holder_identity == holder:
            version = found.metadata.resource_version
            change = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
            api.patch("Lease", name, change)


@contextmanager
def admission(api: Api) -> Iterator[bool]:
    """Be the only process that admits a run of the namespace, where that can be had: without the right, with
    a Lease that is none, or when others hold it for too long, the body runs all the same, with False.
    """
    holder = machine.process_name()
    deadline = time.monotonic() + _PATIENCE
    held = False
    with suppress(Denied, Damaged):
        while not (held := take(api, names.ADMISSION_LEASE, holder, ADMISSION_LASTS)):
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK)
    try:
        yield held
    finally:
        if held:
            release(api, names.ADMISSION_LEASE, holder)
