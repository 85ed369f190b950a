"""Real agents without a supervisor: a task file, a process for each worker, and what they leave written."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from tests.agent.pods import Pods, pods_here

from echelon.agent import task as agent_task
from echelon.model.output.log import EventLine, parse_line

AGENT = Path(agent_task.__file__).with_name("__main__.py")


class Agents:
    """The agents of one run, started by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        (folder / "secret").write_text("a secret of the test's own")
        self.task: dict[str, Any] = {
            "schema": agent_task.SCHEMA,
            "run": "test",
            "groups": [],
            "cwd": str(folder),
            "output": str(folder / "out"),
            "logs": str(folder / "out" / "logs"),
            "reports": str(folder),
            "secret": str(folder / "secret"),
            "leader": {"host": "127.0.0.1", "port": self._listener.getsockname()[1]},
            "grace": 60.0,  # ranks end when they are asked to, on a busy machine late
        }

    def describe(self, *argv: str, workers: int = 1, procs: int = 1, **more: object) -> None:
        """Write the task: these workers, each rank running this command."""
        launch = {"argv": list(argv), "wiring": {}, "ports": "none"}
        self.task["groups"] = [{"role": "worker", "workers": workers, "procs": procs, "launch": launch}]
        self.describe_again(**more)

    def describe_again(self, **more: object) -> None:
        """Write the task after a change."""
        self.task.update(more)
        (self.folder / "task.json").write_text(json.dumps(self.task))

    def start(
        self,
        worker: int,
        python: str = sys.executable,
        failures: int = 0,
        stdout: IO[bytes] | int | None = None,
    ) -> subprocess.Popen[bytes]:
        command = [python, "-I", "-S", str(AGENT), str(self.folder / "task.json"), "--worker", str(worker)]
        command += ["--failures", str(failures)]
        handed = []
        if worker == 0:
            handed = [self._listener.fileno()]
            command += ["--listen-fd", str(handed[0])]
        with (self.folder / f"worker-{worker}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log if stdout is None else stdout, stderr=log, pass_fds=handed
            )
        self.processes[worker] = process
        return process

    def output(self, worker: int) -> list[bytes]:
        return (self.folder / f"worker-{worker}.log").read_bytes().splitlines()

    def events(self, worker: int) -> list[dict[str, Any]]:
        return [
            json.loads(line.payload)
            for line in (parse_line(raw, worker) for raw in self.output(worker))
            if isinstance(line, EventLine)
        ]

    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = json.loads((self.folder / "verdict.json").read_bytes())
        return verdict

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._listener.close()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pods() -> Iterator[Pods]:
    with pods_here() as made:
        yield made


@pytest.fixture
def write_script(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write
