"""What was shipped for runs of a cluster: its digest is in the record, the archive on the machine that
submitted the run. The copy in the cluster is deleted when the run ends."""

from __future__ import annotations

from collections.abc import Callable

from echelon.engines.abilities import ShippedCode
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.machine import Submissions
from echelon.model.run import RunRef


class ShippedRuns:
    """That of the runs of one namespace."""

    def __init__(self, connect: Callable[[], Api], submissions: Submissions) -> None:
        self._connect = connect
        self._submissions = submissions

    def code(self, ref: RunRef) -> ShippedCode | None:
        """As it was packed; None for a script that is in the image or on a volume."""
        stored = views.read_alone(self._connect(), ref)
        digest = stored.shipped.digest
        return (
            ShippedCode(digest=digest, archive=self._submissions.code_that_ran(stored.uid))
            if digest
            else None
        )
