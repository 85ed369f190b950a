"""What tests of copies share: a tree to copy, and a look at what a copy leaves in the cluster."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.kubectl import Kubectl

from echelon.engines.kubernetes import names

TRANSFER = f"{names.COMPONENT}={names.TRANSFER}"


def left(namespace: Kubectl) -> list[str]:
    """What is there of copy pods."""
    return [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in namespace.items("jobs,pods,configmaps", "-l", TRANSFER)
    ]


def fill(folder: Path, size: int) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "large").write_bytes(os.urandom(size))
    (folder / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "sub" / "run.sh").chmod(0o750)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("sub/run.sh")
    return folder
