"""An example for each library that trains, as the page "Which framework, which command" says: two ranks that
are one training.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.paths import CACHE
from tests.conftest import PATIENCE

import echelon
from testbed import trainers

pytestmark = pytest.mark.usefixtures("home")

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
# The framework that is found, and what every rank prints at last.
SAID = {
    "accelerate_train.py": ("torch", r"process {rank} of 2: 16 batches an epoch"),
    "deepspeed_train.py": ("torch", r"rank {rank} of 2"),
    "fsdp2_train.py": ("torch", r"rank {rank} of 2 holds 16 of 32 rows"),
    "jax_train.py": ("jax", r"process {rank} of 2: y = 3\.00 x \+ 1\.00"),
    "lightning_train.py": ("torch", r"rank {rank} of 2 made 16 steps"),
    "xgboost_train.py": ("xgboost", r"rank {rank} of 2: 20 trees, error=0\.0\d+"),
}
QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


@pytest.fixture
def need(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a library that is not in the environment beside what is."""

    def need(name: str) -> None:
        if reason := trainers.missing(name):
            pytest.skip(reason)
        folder = trainers.folder(name)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")  # ninja is a program
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(CACHE / "trainers" / "compiled"))

    return need


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAID))
def test_two_ranks_train_together(name: str, need: Callable[[str], None]) -> None:
    library = name.removesuffix("_train.py")
    if library in trainers.PACKAGES:
        need(library)
    framework, last = SAID[name]
    run = echelon.run(str(EXAMPLES / name), workers=2, env=QUIET)
    status = run.wait((10 if library == "deepspeed" else 4) * PATIENCE)  # DeepSpeed compiles
    lines = list(run.logs())
    assert (status.state, status.framework) == ("succeeded", framework), lines
    for rank in range(2):
        said = [line.text for line in lines if line.rank == rank]
        assert any(re.fullmatch(last.format(rank=rank), text) for text in said), said


def test_every_example_is_on_the_page_and_in_this_test() -> None:
    files = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert files == sorted(SAID)
    assert [name for name in files if f"../examples/frameworks/{name}" not in PAGE.read_text()] == []
