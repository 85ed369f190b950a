"""A keeper beside the agents of `Pods`: its own process from the same archive, with a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.agent.pods import Pods
from tests.conftest import PATIENCE, wait_until

from echelon.agent import task as agent_task

SIZE = 1 << 30
WRITES = """
import os, pathlib
output = pathlib.Path(os.environ["ECHELON_OUTPUT"])
(output / "deep").mkdir(exist_ok=True)
for number in range(3):
    (output / "deep" / f"part-{number}").write_bytes(os.urandom(100_000))
(output / "latest").symlink_to(output / "deep" / "part-0")
os.mkfifo(output / "pipe")
print("written", flush=True)
"""


class RunKeeper:
    """The keeper of the run that `pods` is. The workers' task must name the same `keep`."""

    def __init__(self, pods: Pods, *, keep: float = 600.0, size: int = SIZE, number: int = 0) -> None:
        self.pods = pods
        self.place = pods.folder / f"keeper-{number}"
        self._task = {"keep": keep, "keep_size": size, "keep_folder": str(self.place / "kept")}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, python: str = sys.executable, **changes: object) -> None:
        self.place.mkdir()
        task = {
            "schema": agent_task.SCHEMA,
            "run": "test",
            "cwd": "/",
            "output": "/nowhere",
            "logs": "/nowhere",
            "reports": str(self.place / "state"),
            "secret": str(self.pods.folder / "gang"),
            "leader": {"host": "127.0.0.1", "port": self.pods.port},
            "control": str(self.place / "state" / "c"),
            "termination": str(self.place / "termination"),
            "groups": self.pods.task["groups"],
            **self._task,
            **changes,
        }
        (self.place / "task.json").write_text(json.dumps(task))
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [python, str(self.pods.archive), "keeper", str(self.place / "task.json")],
                env={**environment, "ECHELON_POD_IP": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def code(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE)

    def events(self) -> list[dict[str, Any]]:
        lines = (self.place / "log").read_bytes().splitlines()
        return [json.loads(line.partition(b" [event] ")[2]) for line in lines if b" [event] " in line[:72]]

    def state(self) -> list[dict[str, Any]]:
        """The run's events that it was told last."""
        told = [event["events"] for event in self.events() if event["kind"] == "state"]
        return told[-1] if told else []

    def kept(self) -> dict[int, dict[str, Any]]:
        """What it vouches for, by worker."""
        return {event["worker"]: event for event in self.events() if event["kind"] == "worker-kept"}

    def folder(self, worker: int, number: int = 0) -> Path:
        return self.place / "kept" / str(worker) / str(number)

    def order(self, *words: str) -> subprocess.CompletedProcess[str]:
        control = [sys.executable, str(self.pods.archive), "control", str(self.place / "state" / "c")]
        return subprocess.run(
            [*control, *words], capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def wait_kept(self, *workers: int) -> None:
        wait_until(lambda: set(workers) <= set(self.kept()), f"the results of {workers} with the keeper")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def start_run(
    pods: Pods,
    script: str,
    *,
    workers: int = 2,
    hold: float = 600.0,
    agent: str = sys.executable,
    **more: Any,
) -> None:
    """Start the workers of a run that has a keeper, which is not started here."""
    pods.script(script, workers=workers, hold=hold, keep=600.0, repeat_state=True, **more)
    for worker in reversed(range(workers)):
        pods.start(worker, kept=[str(pods.place(worker) / "output")], python=agent)
