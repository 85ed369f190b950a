"""The example under echelon: a rank killed in the middle of an epoch costs that epoch, and changes nothing in
the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

import echelon

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion_mnist" / "train.py"

pytestmark = pytest.mark.slow


def start(name: str, data: Path, restarts: int) -> echelon.Run:
    args = ["--data_path", str(data), "--checkpoint_path", "{output}/ckpt", "--epochs=3", "--limit=3000"]
    return echelon.run(EXAMPLE, name=name, args=args, workers=2, restarts=restarts)


def weights(run: echelon.Run) -> str:
    import torch

    state = torch.load(run.get("ckpt/model.pt"), weights_only=True)
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode() + state[name].numpy().tobytes())
    return digest.hexdigest()


def test_a_rank_killed_in_epoch_2_changes_nothing_in_the_end(home: Path) -> None:
    data = os.environ.get("ECHELON_TEST_DATA")
    if data is None:
        pytest.skip("ECHELON_TEST_DATA names no folder with the data; `make test` fetches it")
    disturbed = start("disturbed", Path(data), restarts=1)
    pids = {}
    for event in disturbed.events():
        pids.update(event.pids or {})
        if len(pids) == 2:
            break
    for line in disturbed.logs(follow=True):
        if line.text.startswith("Train Epoch: 2 ["):
            os.kill(pids["1"], signal.SIGKILL)
            break
    status = disturbed.wait(3 * PATIENCE)
    assert (status.state, status.restarts) == ("succeeded", 1), status
    texts = [line.text for line in disturbed.logs(rank=0)]
    # Epoch 1 was not trained again.
    assert sum(text.startswith("Train Epoch: 1 [3000/") for text in texts) == 1
    assert Path("runs/disturbed/logs/rank-1.log").read_bytes().count(b"--- restart 1 ---") == 1

    undisturbed = start("undisturbed", Path(data), restarts=0)
    assert undisturbed.wait(3 * PATIENCE).state == "succeeded"
    assert weights(disturbed) == weights(undisturbed)
