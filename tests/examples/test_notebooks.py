"""The example notebooks run, distributed steps included."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.examples.conftest import write_idx_folder

EXAMPLES = Path(__file__).parents[2] / "examples" / "notebooks"
Call = Callable[..., subprocess.CompletedProcess[str]]


def run(cli: Call, name: str | Path, *more: str) -> dict[str, Any]:
    done = cli("notebook", "run", str(EXAMPLES / name), *more, "-o", "json", patience=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    return {key: value for step in found["steps"].values() for key, value in step["metrics"].items()}


def up_to_training(folder: Path) -> Path:
    """The same notebook without what comes after training, in which each worker leaves a mark where it
    saves.
    """
    document = json.loads((EXAMPLES / "fashion_mnist_tensorflow.ipynb").read_text())
    saving = next(at for at, cell in enumerate(document["cells"]) if "model.save(" in "".join(cell["source"]))
    document["cells"] = document["cells"][: saving + 1]
    document["cells"][saving]["source"] = [
        *document["cells"][saving]["source"],
        "\npathlib.Path('saved-by-' + os.environ['ECHELON_RANK']).touch()",
    ]
    path = folder / "up_to_training.ipynb"
    path.write_text(json.dumps(document))
    return path


def test_fan_out(cli: Call) -> None:
    metrics = run(cli, "fan_out.ipynb", "--param", "points=4000")
    assert abs(metrics["pi"] - 3.14) < 0.2


@pytest.mark.slow
def test_tensorflow_trains_on_two_workers(cli: Call, tmp_path: Path) -> None:
    """Loss falls; worker 0 alone saves; the model comes as a variable and as a file; twice under one name."""
    folder = write_idx_folder(tmp_path / "data", train=600, test=100)
    given = ("--param", f"data_path={folder}", "--param", "epochs=2")
    run(cli, up_to_training(tmp_path), *given)
    first = Path("runs", "fashion-mnist-tf-1")
    assert sorted(path.name for path in first.glob("work/saved-by-*")) == ["saved-by-0"]
    assert [path.name for path in first.glob("**/saved-by-1")] == ["saved-by-1"]  # in a folder of its own
    saved = first / "work" / "model.keras"
    before = saved.read_bytes()
    metrics = run(cli, "fashion_mnist_tensorflow.ipynb", *given)
    assert saved.read_bytes() == before
    assert metrics["last_loss"] < metrics["first_loss"]
    assert 0 <= metrics["accuracy"] <= 1
    assert Path("runs", "fashion-mnist-tf-2", "work", "model.keras").exists()
    stored = json.loads(Path("runs/fashion-mnist-tf-2/values/train/model/meta.json").read_text())
    assert stored["codec"] == "keras-model"


@pytest.mark.slow
def test_torch_trains_on_two_workers(cli: Call, tmp_path: Path) -> None:
    folder = write_idx_folder(tmp_path / "data", train=600, test=100)
    metrics = run(cli, "fashion_mnist_torch.ipynb", "--param", f"data_path={folder}")
    assert metrics["last_loss"] < metrics["first_loss"]
    assert 0 <= metrics["accuracy"] <= 1
