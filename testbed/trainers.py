"""Libraries that train on top of PyTorch, from PyPI, in folders beside it: the project needs none of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testbed.locking import held
from testbed.paths import CACHE

# Without what they need: most of that comes with PyTorch.
_ACCELERATE = ("accelerate==1.15.0", "safetensors==0.8.0")
_LIGHTNING = (
    "lightning==2.6.6",
    "lightning-utilities==0.15.3",
    "pytorch-lightning==2.6.6",
    "torchmetrics==1.9.0",
)
_TRANSFORMERS = (*_ACCELERATE, "transformers==5.23.0", "tokenizers==0.23.3", "regex==2026.11.9")
_PYDANTIC = (
    "pydantic==2.14.3",
    "pydantic-core==2.50.4",
    "annotated-types==0.8.0",
    "typing-inspection==0.4.5",
)
_DEEPSPEED = (
    *("deepspeed==0.19.8", "einops==0.8.2", "hjson==3.1.0", "msgpack==1.2.4"),
    *("ninja==1.13.2", "py-cpuinfo==9.0.0", *_PYDANTIC),
)
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "accelerate": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "lightning": _LIGHTNING,
    "transformers": _TRANSFORMERS,
}


def missing(name: str) -> str:
    """Why a library cannot be used on this machine, in one line; empty if it can."""
    if name == "deepspeed" and not shutil.which("g++"):
        return "DeepSpeed compiles what it needs on a CPU with g++, which is not on this machine"
    return ""


def folder(name: str) -> Path:
    """A folder for PYTHONPATH with the library; installed if it is not in the cache."""
    wanted = PACKAGES[name]
    key = hashlib.sha256(repr((wanted, sys.version)).encode()).hexdigest()[:12]
    target = CACHE / "trainers" / f"{name}-{key}"
    if target.is_dir():
        return target
    with held(CACHE / "trainers" / ".lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".trainers-") as scratch:
                made = Path(scratch, "made")
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                words = ["--no-deps", "--no-build-isolation", "--target", str(made), *wanted]
                # DeepSpeed asks for the PyTorch of this environment, and compiles later, for what is used.
                subprocess.run([*pip, *words], check=True, env=os.environ | {"DS_BUILD_OPS": "0"})
                made.replace(target)
    return target
