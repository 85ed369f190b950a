"""Kubeflow's own Python clients, from PyPI, in folders of their own: their needs are not the project's."""

from __future__ import annotations

import email
import subprocess
import sys
import tempfile
from pathlib import Path

from testbed.locking import held
from testbed.paths import CACHE

TRAINING = "kubeflow-training"
VERSIONS = {TRAINING: "1.9.4", "kubeflow": "0.5.0"}  # of the first generation, and of the second


def folder(package: str = TRAINING) -> Path:
    """A client with all that it needs, to be put on PYTHONPATH; installed if it is not in the cache."""
    return _installed(package)


def source(package: str) -> Path:
    """A client's files, to be read."""
    return _installed(package) if package == TRAINING else _installed(package, "--no-deps")


def description(package: str) -> str:
    """What a package says of itself on PyPI: its README."""
    (metadata,) = source(package).glob(f"{package.replace('-', '_')}-*.dist-info/METADATA")
    text = email.message_from_bytes(metadata.read_bytes()).get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


def _installed(package: str, *options: str) -> Path:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    whole = "" if options or package == TRAINING else "-whole"
    target = CACHE / "sdk" / f"{package}-{VERSIONS[package]}-py{python}{whole}"
    if target.is_dir():
        return target
    with held(CACHE / "sdk" / ".lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".sdk-") as scratch:
                made = Path(scratch, "made")
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                words = ["--no-compile", "--target", str(made), f"{package}=={VERSIONS[package]}"]
                subprocess.run([*pip, *options, *words], check=True)
                made.replace(target)
    return target
