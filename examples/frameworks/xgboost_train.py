"""Trees grown together: each rank has its own rows, and XGBoost's collective adds up the histograms."""

import os

import numpy as np
import xgboost
from xgboost.collective import CommunicatorContext
from xgboost.tracker import RabitTracker

rank, ranks = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if rank == 0:  # the tracker stays in this process until all ranks have left
    tracker = RabitTracker(n_workers=ranks, host_ip=host, port=port, sortby="task")
    tracker.start()
place = {"dmlc_tracker_uri": host, "dmlc_tracker_port": port, "dmlc_task_id": str(rank), "dmlc_retry": 8}
with CommunicatorContext(**place):
    x = np.random.default_rng(rank).normal(size=(500, 4))
    rows = xgboost.DMatrix(x, label=(x[:, 0] > x[:, 1]).astype(int))
    model = xgboost.train({"objective": "binary:logistic", "max_depth": 3}, rows, 20)
    error = float(np.mean((model.predict(rows) > 0.5) != rows.get_label()))
    print(f"rank {rank} of {ranks}: {model.num_boosted_rounds()} trees, error={error:.3f}", flush=True)
    if rank == 0:
        model.save_model(f"{os.environ['ECHELON_OUTPUT']}/model.json")
