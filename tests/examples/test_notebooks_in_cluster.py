"""The example notebooks in a real cluster, with real TensorFlow and PyTorch on two workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.examples.conftest import write_idx_folder
from tests.faults.kubernetes.terminal import Terminal, terminal

__all__ = ["terminal"]

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "fashion_mnist_tensorflow.ipynb"


def test_tensorflow_trains_on_two_workers_in_pods(terminal: Terminal, image: Callable[[str], str]) -> None:
    """Loss falls on both; the model comes home as worker 0 has saved it."""
    write_idx_folder(terminal.folder / "data", train=600, test=100)
    (terminal.folder / NOTEBOOK.name).write_text(NOTEBOOK.read_text())
    words = ("--image", image("tensorflow"), "--volume", "new:200Mi@shared")
    done = terminal.call("notebook", "run", NOTEBOOK.name, *words, patience=600)
    assert done.returncode == 0, done.stderr[-3000:]
    told = {
        name: float(value) for name, value in (line.split(": ") for line in done.stdout.splitlines()[-4:])
    }
    assert told["last_loss"] < told["first_loss"]
    losses = [
        line.partition("] ")[2] for line in done.stdout.splitlines() if "loss: " in line and "[train" in line
    ]
    assert len(losses) == 4  # of two epochs on two workers
    assert (terminal.folder / "runs" / "fashion-mnist-tf-1" / "work" / "model.keras").is_file()
    record = json.loads(terminal.read("fashion-mnist-tf-1", "pipeline.json"))
    assert {step["state"] for step in record["steps"].values()} == {"succeeded"}


def test_fan_out_gives_the_same_value_in_pods(terminal: Terminal) -> None:
    book = NOTEBOOK.with_name("fan_out.ipynb")
    (terminal.folder / book.name).write_text(book.read_text())
    words = ("notebook", "run", book.name, "--param", "points=4000")
    here = terminal.call(*words, "--on", "local")
    assert here.returncode == 0, here.stderr
    there = terminal.call(*words, "--image", terminal.image, "--volume", "new:50Mi@shared")
    assert there.returncode == 0, there.stderr
    assert there.stdout.splitlines()[-1] == here.stdout.splitlines()[-1]
    assert here.stdout.splitlines()[-1].startswith("pi: 3.")


def test_torch_trains_on_two_workers_in_pods(terminal: Terminal, image: Callable[[str], str]) -> None:
    """As here: what differs between two builds of PyTorch is in the last digits."""
    write_idx_folder(terminal.folder / "data", train=200, test=100)
    book = NOTEBOOK.with_name("fashion_mnist_torch.ipynb")
    (terminal.folder / book.name).write_text(book.read_text())
    words = ("notebook", "run", book.name)
    here = terminal.call(*words, "--on", "local", patience=300)
    assert here.returncode == 0, here.stderr[-3000:]
    there = terminal.call(*words, "--image", image("torch"), "--volume", "new:200Mi@shared", patience=600)
    assert there.returncode == 0, there.stderr[-3000:]
    metrics = [dict(line.split(": ") for line in done.stdout.splitlines()[-3:]) for done in (here, there)]
    for name in ("first_loss", "last_loss", "accuracy"):
        assert float(metrics[1][name]) == pytest.approx(float(metrics[0][name]), abs=0.05)
