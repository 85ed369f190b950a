"""The real agent, started as the supervisor starts it, with a task written here: for `logs.py` and
`gang.py`.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from echelon.agent import task as agent_task
from measure.rounds import PATIENCE, Workspace

_AGENT = Path(agent_task.__file__).with_name("__main__.py")
_WIRING = {"MASTER_ADDR": "{address:0}", "MASTER_PORT": "{port:0}"}  # as PyTorch's, and the machine of a rank


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningAgent:
    """Worker 0 of a run: its process, the way to talk to it, and where it writes."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    address: tuple[str, int]
    secret: bytes
    output: Path
    rank_log: Path


@contextlib.contextmanager
def leading_agent(
    place: Workspace, argv: Sequence[str], *, workers: int = 1, restarts: int = 0
) -> Iterator[RunningAgent]:
    """Start worker 0 of `workers`, one rank each. It ends when this process does."""
    folder = place.path / f"agent-{secrets.token_hex(4)}"
    folder.mkdir()
    secret = secrets.token_hex(32)
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        address: tuple[str, int] = listener.getsockname()
        _write_task(folder, argv, workers, restarts, secret, address)
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", str(_AGENT), str(folder / "task.json"), "--worker", "0"]
        command += ["--listen-fd", str(listener.fileno()), "--control-fd", str(theirs.fileno())]
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                env=place.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[listener.fileno(), theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
    try:
        yield RunningAgent(
            process=process,
            control=ours,
            address=address,
            secret=secret.encode(),
            output=folder / "output",
            rank_log=folder / "results" / "logs" / "rank-0.log",
        )
    finally:
        ours.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask_to_stop(agent: RunningAgent) -> None:
    """Say the word that `echelon stop` makes the supervisor say."""
    agent.control.sendall(json.dumps({"say": "stop", "reason": "the benchmark is over"}).encode() + b"\n")


def _write_task(
    folder: Path, argv: Sequence[str], workers: int, restarts: int, secret: str, address: tuple[str, int]
) -> None:
    (folder / "secret").write_text(secret)
    here = {"LOCAL_RANK": f"{{rank_here:{workers}}}", "GROUP_RANK": f"{{machine:{workers}}}"}
    group = {
        "role": "worker",
        "workers": workers,
        "procs": 1,
        "launch": {"argv": list(argv), "ports": "first", "wiring": _WIRING | here},
    }
    task = {
        "schema": agent_task.SCHEMA,
        "run": "bench",
        "groups": [group],
        "cwd": str(folder),
        "output": str(folder / "results"),
        "logs": str(folder / "results" / "logs"),
        "reports": str(folder),
        "secret": str(folder / "secret"),
        "leader": {"host": address[0], "port": address[1]},
        "restarts": restarts,
    }
    (folder / "task.json").write_text(json.dumps(task))
