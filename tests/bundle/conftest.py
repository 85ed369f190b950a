"""Git as a fixture: the oracle for what is ignored."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def git() -> Callable[..., bytes]:
    """Git without this machine's own settings."""
    settled = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "XDG_CONFIG_HOME": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }

    def run(*arguments: str) -> bytes:
        command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *arguments]
        return subprocess.run(command, env={**os.environ, **settled}, check=True, capture_output=True).stdout

    return run
