"""Real TensorFlow under the local engine: several mirrored workers, and parameter servers that end with the
work.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PATIENCE

import echelon

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_ENABLE_ONEDNN_OPTS": "0"}

MIRRORED = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(loss="mse", optimizer="sgd")
data = tf.data.Dataset.from_tensor_slices((tf.ones((64, 4)), tf.ones((64, 1)))).batch(16).repeat()
history = model.fit(data, epochs=2, steps_per_epoch=4, verbose=0)
print("replicas", strategy.num_replicas_in_sync, "losses", len(history.history["loss"]))
"""

PARAMETER_SERVER = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)
@tf.function
def step():
    total.assign_add(1.0)
for _ in range(10):
    coordinator.schedule(step)
coordinator.join()
print("total", total.numpy())
"""


def test_mirrored_workers_fit_together() -> None:
    Path("train.py").write_text(MIRRORED)
    run = echelon.run("train.py", workers=2, env=QUIET)
    status = run.wait(4 * PATIENCE)
    assert status.state == "succeeded", status
    assert status.framework == "tensorflow"
    lines = [line.text for line in run.logs() if line.text.startswith("replicas")]
    assert lines == ["replicas 2 losses 2"] * 2


def test_parameter_servers_and_workers_serve_until_the_chief_has_ended() -> None:
    Path("train.py").write_text(PARAMETER_SERVER)
    run = echelon.run("train.py", workers=1, roles={"chief": 1, "ps": 1}, env=QUIET)
    status = run.wait(4 * PATIENCE)
    assert status.state == "succeeded", status
    assert [line.text for line in run.logs() if line.text.startswith("total")] == ["total 10.0"]
