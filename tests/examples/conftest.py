"""What the tests of the examples share: small data made here, the modules under test, a clean environment."""

import gzip
import importlib
import os
import random
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion_mnist"


def idx(shape: tuple[int, ...], values: bytes) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values


def write_idx_folder(folder: Path, *, train: int = 200, test: int = 50, compress: bool = False) -> Path:
    """Images whose brightness tells their class, with noise: small, and something can be learnt from them."""
    dice = random.Random(7)
    folder.mkdir()
    for prefix, count in (("train", train), ("t10k", test)):
        labels = bytes(dice.randrange(10) for _ in range(count))
        images = b"".join(bytes(25 * label + dice.randrange(25) for _ in range(784)) for label in labels)
        for name, content in (
            (f"{prefix}-images-idx3-ubyte", idx((count, 28, 28), images)),
            (f"{prefix}-labels-idx1-ubyte", idx((count,), labels)),
        ):
            if compress:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="session")
def make_idx_folder() -> Callable[..., Path]:
    return write_idx_folder


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The example's modules, which have plain names because its folder stands alone; gone after the test."""
    monkeypatch.syspath_prepend(EXAMPLE)
    names = ("idx", "data", "train", "fetch_data")
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """This process's environment without what a launcher may have set; warnings are errors, GPUs not seen."""
    launchers = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    kept = {name: value for name, value in os.environ.items() if name not in launchers}
    return kept | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The real Fashion-MNIST; `make test` fetches it and says where it is."""
    folder = os.environ.get("ECHELON_TEST_DATA")
    if not folder:
        pytest.skip("ECHELON_TEST_DATA names no folder of Fashion-MNIST")
    return Path(folder)
