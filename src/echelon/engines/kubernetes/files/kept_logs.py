"""The logs of a run's workers from its keeper, for those whose pods are gone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.transfer import fetch_tree, pod_opener
from echelon.engines.kubernetes.follow.keeper import find_keeper
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state import workers
from echelon.errors import EchelonError
from echelon.model.status import WorkerStatus


@contextmanager
def kept_logs(
    api: Api, stored: Stored, pods: Sequence[Pod], wanted: Sequence[WorkerStatus]
) -> Iterator[Path | None]:
    """A folder with the log files of those workers that have no pod any more, as far as the keeper has them;
    None if it has none. It is there inside the context.
    """
    there = {
        worker for worker, mine in workers.pods_by_worker(pods).items() if any(map(workers.has_started, mine))
    }
    lacking = [each.worker for each in wanted if each.worker not in there]
    keeper = find_keeper(api, stored) if lacking else None
    if keeper is None or keeper.pod is None:
        yield None
        return
    opener = pod_opener(api, keeper.pod, python=stored.run.job.python)
    with tempfile.TemporaryDirectory(prefix="echelon-logs-") as folder:
        for worker in lacking:
            if worker in keeper.kept:
                with suppress(EchelonError):  # it wrote no log, or the keeper leaves at this moment
                    fetch_tree(opener, names.kept_folder(worker, 0), Path(folder), path="logs")
        yield Path(folder)
