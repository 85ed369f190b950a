"""What Keras makes, between steps: models with layers of the notebook's own, histories, optimizers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.notebook.books import write_book

LAYER = """
class Scaled(tf.keras.layers.Layer):
    def __init__(self, by=2, **more):
        super().__init__(**more)
        self.by = by

    def call(self, x):
        return x * self.by

    def get_config(self):
        return {**super().get_config(), "by": self.by}

@tf.function
def double(x):
    return 2 * x
"""
TRAIN = """
model = tf.keras.Sequential([Scaled(3), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.ones((4, 2)), np.ones((4, 1))
history = model.fit(x, y, epochs=2, verbose=0)
models = {"best": model}
alone = tf.keras.Sequential([tf.keras.layers.Dense(1)])
before = alone(x).numpy()
twice = double(tf.constant(2))
"""
MORE = """
model.fit(x, y, verbose=0)
same = bool((alone(x).numpy() == before).all())
"""
USE = """
seen = [len(history.history["loss"]), type(history).__name__, model.layers[0].by, same]
seen += [models["best"] is model, int(model.optimizer.iterations), int(double(twice))]
"""


@pytest.mark.slow
def test_models_histories_and_compiled_functions(
    cli: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    cells = [
        ("imports", "import numpy as np\nimport tensorflow as tf"),
        ("functions", LAYER),
        ("step:train", TRAIN),
        ("step:more prev:train", MORE),
        ("step:use prev:more", USE),
        ("pipeline-metrics", "seen"),
    ]
    write_book(Path("keras.ipynb"), cells)
    done = cli("notebook", "run", "keras.ipynb", patience=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "seen: [2, 'History', 3, True, True, 3, 8]"
