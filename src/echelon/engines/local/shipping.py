"""What was shipped for runs of this machine: the archive in a run's folder."""

from __future__ import annotations

import hashlib

from echelon.engines.abilities import ShippedCode
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.store import RunStore
from echelon.model.run import RunRef


class LocalShipping:
    """That of one state folder."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs

    def code(self, ref: RunRef) -> ShippedCode | None:
        """As it was packed; None for a script that runs in place. Of a run that has succeeded, a large
        archive is deleted; its digest is still in what the agents were told.
        """
        folder = self._runs.dir(ref.name)
        try:
            archive = folder.bundle.read_bytes()
        except OSError:
            told = (rundir.read_json(folder.task) or {}).get("bundle")
            digest = told.get("digest") if isinstance(told, dict) else None
            return ShippedCode(digest=digest) if isinstance(digest, str) else None
        return ShippedCode(digest=hashlib.sha256(archive).hexdigest(), archive=archive)
