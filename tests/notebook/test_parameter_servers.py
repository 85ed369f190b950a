"""A step with ParameterServerStrategy: a chief runs the cells; workers and a parameter server serve it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.notebook.books import write_book

TRAIN = """
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(0.0)

@tf.function
def nudge():
    with tf.GradientTape() as tape:
        loss = (weight - goal) ** 2
    weight.assign_sub(0.1 * tape.gradient(loss, weight))
    return loss

losses = []
for _ in range(20):
    losses.append(coordinator.schedule(nudge).fetch())
found = float(weight.numpy())
first, last = float(losses[0]), float(losses[-1])
"""


@pytest.mark.slow
def test_a_chief_two_workers_and_a_parameter_server_train(
    cli: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    cells = [
        ("step:load", "goal = 3.0"),
        ("step:train prev:load distribute:ParameterServerStrategy workers:2 parameterServers:1", TRAIN),
        ("step:use prev:train", "print('close' if abs(found - goal) < 0.2 and last < first else 'far')"),
    ]
    write_book(Path("ps.ipynb"), cells)
    done = cli("notebook", "run", "ps.ipynb", patience=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "[use] close" in done.stdout
