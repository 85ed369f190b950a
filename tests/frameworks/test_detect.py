"""Which framework a script means, by its imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.frameworks.detect import detect


def project(folder: Path, **files: str) -> tuple[Path, ...]:
    """A project of small modules; `__` in a name is a folder."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return (folder,)


@pytest.mark.parametrize(
    ("source", "framework"),
    [
        ("import torch", "torch"),
        ("import torch.distributed as dist", "torch"),
        ("from torch.nn import Linear", "torch"),
        ("import pytorch_lightning as pl", "torch"),
        ("from transformers import Trainer", "torch"),
        ("import tensorflow as tf", "tensorflow"),
        ("from keras import layers", "tensorflow"),
        ("import horovod.torch as hvd\nimport torch", "horovod"),
        ("from mpi4py import MPI\nimport torch", "mpi"),
        ("import tensorflow\nimport torch", "torch"),
        ("import jax.numpy as jnp", "jax"),
        ("import jax\nfrom flax import nnx\nimport torch.utils.data", "jax"),
        ("import optax\nimport tensorflow as tf", "jax"),
        ("import jax\nimport torch", "torch"),
        ("import mpi4jax\nimport jax", "mpi"),
        ("from xgboost import DMatrix", "xgboost"),
        ("import xgboost\nimport torch", "torch"),
        ("def main():\n    if True:\n        import torch", "torch"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", "torch"),
        ("import numpy, os", "plain"),
        ("torch = 'import torch'", "plain"),
        ("import torchlike", "plain"),
        ("# import torch", "plain"),
        ("", "plain"),
    ],
)
def test_a_script_alone(source: str, framework: str) -> None:
    assert detect(source.encode()) == framework


@pytest.mark.parametrize(
    "source",
    [b"import torch\ndef broken(:\n", b"\x00\x01", b"\xff\xfe garbage", b"(" * 5000, b"print 'Python 2'"],
)
def test_what_cannot_be_read_is_plain(source: bytes) -> None:
    assert detect(source) == "plain"


def test_invalid_escapes_are_not_ours_to_report() -> None:
    assert detect(b"import torch\npattern = '\\d'") == "torch"


def test_other_encodings() -> None:
    assert detect("# -*- coding: latin-1 -*-\nname = 'grüße'\nimport torch".encode("latin-1")) == "torch"


def test_modules_of_the_project_are_followed(tmp_path: Path) -> None:
    roots = project(tmp_path, net="from layers import deep", layers__deep="import torch", layers____init__="")
    assert detect(b"import net", roots) == "torch"
    assert detect(b"import elsewhere", roots) == "plain"
    assert detect(b"import layers", roots) == "plain"
    assert detect(b"import layers.deep", roots) == "torch"
    assert detect(b"from layers.deep import anything", roots) == "torch"


def test_a_module_in_another_root(tmp_path: Path) -> None:
    project(tmp_path, src__mine__net="import tensorflow", scripts__train="")
    roots = (tmp_path / "scripts", tmp_path, tmp_path / "src")
    assert detect(b"from mine import net", roots) == "tensorflow"


def test_circles_end(tmp_path: Path) -> None:
    roots = project(tmp_path, one="import two", two="import one\nimport torch")
    assert detect(b"import one", roots) == "torch"


def test_relative_imports_of_a_package(tmp_path: Path) -> None:
    project(
        tmp_path, mine__train="", mine__net="from . import deep", mine__deep="import torch", mine____init__=""
    )
    roots = (tmp_path / "mine", tmp_path)
    assert detect(b"from .net import Net", roots) == "torch"
    assert detect(b"from . import net", roots) == "torch"
    assert detect(b"from .other import thing", roots) == "plain"


# BUG: `from ..x import y` looks for x below its own folder, not above it; and in a package that lies deeper
# than a root (src/mine/models/net.py) even `from . import y` is looked for in the wrong place. The files are
# known by their paths, so a relative import could be followed from the folder it stands in.
@pytest.mark.parametrize("source", [b"from ..net import Net", b"from .. import net"])
def test_relative_imports_from_further_up(source: bytes, tmp_path: Path) -> None:
    project(
        tmp_path, mine__jobs__train="", mine__net="import torch", mine____init__="", mine__jobs____init__=""
    )
    assert detect(source, (tmp_path / "mine" / "jobs", tmp_path)) == "torch"


def test_relative_imports_deep_in_a_package(tmp_path: Path) -> None:
    roots = project(tmp_path, mine__models__net="from . import deep", mine__models__deep="import torch")
    assert detect(b"import mine.models.net", roots) == "torch"


def test_an_unreadable_module_is_passed_over(tmp_path: Path) -> None:
    roots = project(tmp_path, net="\x00")
    (tmp_path / "folder.py").mkdir()
    assert detect(b"import net, folder, torch", roots) == "torch"
