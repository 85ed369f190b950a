"""Real XGBoost under the local engine: ranks grow the same trees from rows that only one of them has."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PATIENCE

import echelon

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

TRAINS = """
import hashlib, os, numpy, xgboost
from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker
rank, ranks = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=ranks, host_ip=host, port=port, sortby="task")
    tracker.start()
with CommunicatorContext(dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank), dmlc_retry=8):
    x = numpy.random.default_rng(rank).normal(size=(200, 3))
    rows = xgboost.DMatrix(x, label=(x[:, 0] > 0).astype(int))
    model = xgboost.train({"objective": "binary:logistic"}, rows, 5)
    digest = hashlib.sha256("".join(model.get_dump()).encode()).hexdigest()
    number, count = xgboost.collective.get_rank(), xgboost.collective.get_world_size()
    print(f"rank {number} of {count} as {rank}", flush=True)
    print(f"trees {digest}", flush=True)
"""


def test_ranks_grow_the_same_trees() -> None:
    Path("train.py").write_text(TRAINS)
    run = echelon.run("train.py", workers=2)
    status = run.wait(4 * PATIENCE)
    assert (status.state, status.framework) == ("succeeded", "xgboost"), list(run.logs())
    texts = [line.text for line in run.logs()]
    assert sorted(text for text in texts if text.startswith("rank ")) == [
        "rank 0 of 2 as 0",
        "rank 1 of 2 as 1",
    ]
    trees = [text for text in texts if text.startswith("trees")]
    assert len(trees) == 2
    assert len(set(trees)) == 1
