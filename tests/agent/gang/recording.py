"""Real ranks that train or hang, from which recordings for tests are made."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from echelon.agent.ranks.launching import launch

_NONE: Mapping[str, str] = MappingProxyType({})


@contextmanager
def ranks_of(
    script: Path, way: str, ranks: int, folder: Path, more: Mapping[str, str] = _NONE
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Ranks of a script, which find each other, and whose Python can be asked; they are killed at the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "PYTHONPATH": launch.STARTUP,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "ECHELON_RANKS": str(ranks),
        "OMP_NUM_THREADS": "1",
        **more,
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            own = {"RANK": str(rank), launch.LOOKS: look_of(folder, rank)}
            started.append(
                subprocess.Popen(
                    [sys.executable, script, way],
                    env={**env, **own},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def look_of(folder: Path, rank: int) -> str:
    """By which path a rank's Python is asked."""
    return str(folder / f"look-{rank}")
