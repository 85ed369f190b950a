"""Kubeflow's own ways to report progress, as PyPI has them, under the local engine: the callback of Hugging
Face's Trainer, which finds the agent by itself, and `update_trainjob_status`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PATIENCE

import echelon
from testbed import sdk, trainers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

# It prints nothing of its progress. The callback reports every five seconds, at the start and at the end.
TRAINER = """
import time, torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        time.sleep(0.15)
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels), "logits": labels}
rows = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(64)]
options = dict(use_cpu=True, disable_tqdm=True, save_strategy="no", log_level="error", report_to="none")
options = TrainingArguments("out", max_steps=60, logging_steps=5, **options)
trainer = Trainer(Model(), options, train_dataset=rows)
trainer.remove_callback(PrinterCallback)
trainer.train()
"""
CLIENT = """
import os
from {module} import update_trainjob_status
given = dict(progress_percent=50, estimated_remaining_seconds=90, metrics={{"loss": 0.25}})
told = update_trainjob_status(**given), update_trainjob_status(**given)
print("told", *told, flush=True)
"""


def reported(run: echelon.Run) -> list[str]:
    """The reports of rank 0, which are states of a bar."""
    return [line.text for line in run.logs(rank=0) if line.progress and line.text]


def test_the_callback_of_hugging_face_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(trainers.folder("transformers")))
    Path("train.py").write_text(TRAINER)
    run = echelon.run("train.py", workers=1, env={"CUDA_VISIBLE_DEVICES": ""})
    status = run.wait(4 * PATIENCE)
    assert status.state == "succeeded", list(run.logs())
    texts = reported(run)
    assert any(text.startswith("step ") and "/60 ETA " in text and " loss=" in text for text in texts), texts
    assert " 100% " in texts[-1]
    progress = run.status().progress
    assert progress is not None
    assert (progress.done, progress.step) == (1.0, None)
    assert "train_loss" in run.metrics()["name"]


@pytest.mark.parametrize("module", ["kubeflow.trainer", "echelon.kubeflow"])
def test_a_function_reports_as_in_a_job_of_kubeflows(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if module == "kubeflow.trainer":
        monkeypatch.setenv("PYTHONPATH", str(sdk.folder("kubeflow")))
    Path("train.py").write_text(CLIENT.format(module=module))
    run = echelon.run("train.py", workers=1)
    status = run.wait(2 * PATIENCE)
    assert status.state == "succeeded", list(run.logs())
    assert "told True False" in [line.text for line in run.logs()], "another so soon is left out"
    assert reported(run) == ["━━━━━━━━━━╺ 50% 0:01:30 loss=0.25"]
    assert run.metrics("loss")["value"] == [0.25]
