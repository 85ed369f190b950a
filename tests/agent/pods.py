"""Agents as they live in pods: from a real zip file, each with folders, a task and an environment of its own,
without a supervisor above them, meeting on loopback.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE, wait_until

from echelon.agent import task as agent_task
from echelon.agent.ranks.launching import ports
from echelon.bundle.zipapp import agent_archive
from echelon.model.output.log import EventLine, LogLine, parse_line

UP = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def parts(folder: Path, data: bytes, size: int = 1000) -> list[str]:
    """What is too large for one object, as it lies in a pod."""
    paths = []
    for number, start in enumerate(range(0, len(data), size)):
        path = folder / f"part-{number:03}"
        path.write_bytes(data[start : start + size])
        paths.append(str(path))
    return paths


@contextmanager
def pods_here() -> Iterator[Pods]:
    """The workers of a run, in a folder with a short name: a socket's must be."""
    with tempfile.TemporaryDirectory() as folder:
        made = Pods(Path(folder))
        yield made
        made.close()


class Pods:
    """The workers of one run. `describe` first, then `start` each; what they leave is in a folder each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archive = folder / "agent.pyz"
        self.archive.write_bytes(agent_archive())
        (folder / "gang").write_text("a secret of the test's own")
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._failures: dict[int, int] = {}
        self._reservation = ports.reserve(1)  # outside the range that the system gives to whoever asks
        self._reservation.open_up()
        self.port = self._reservation.ports[0]
        self.task: dict[str, Any] = {}

    def describe(self, *argv: str, workers: int = 1, procs: int = 1, **more: object) -> None:
        """Say what every rank runs; `more` goes into the task as it is."""
        launch = {"argv": list(argv), "wiring": {}, "ports": "none", **more.pop("launch", {})}  # type: ignore[dict-item]
        self.task = {
            "groups": [{"role": "worker", "workers": workers, "procs": procs, "launch": launch}],
            "grace": 60.0,  # ranks end when they are asked to, on a busy machine late
            **more,
        }

    def script(self, text: str, **more: Any) -> None:
        """Say that every rank runs this text with the tests' own Python."""
        path = self.folder / "script.py"
        path.write_text(text)
        self.describe(more.pop("python", sys.executable), str(path), **more)

    def place(self, worker: int) -> Path:
        """The folder of one worker, a new one after each of its failures, as with pods."""
        return self.folder / f"{worker}.{self._failures.get(worker, 0)}"

    def start(
        self,
        worker: int,
        *,
        python: str = sys.executable,
        failures: int | None = None,
        env: dict[str, str] | None = None,
        before: Sequence[str] = (),
        **changes: object,
    ) -> subprocess.Popen[bytes]:
        """Start the pod of a worker; `failures` says how many were lost in its place, `before` is what starts
        its command.
        """
        self._failures[worker] = failures or 0
        place = self.place(worker)
        place.mkdir()
        task = {
            "schema": agent_task.SCHEMA,
            "run": "test",
            "cwd": str(place),
            "output": str(place / "output"),
            "logs": str(place / "output" / "logs"),
            "reports": str(place / "state"),
            "secret": str(self.folder / "gang"),
            "leader": {"host": "127.0.0.1", "port": self.port},
            "control": str(place / "state" / "c"),
            "termination": str(place / "termination"),
            **self.task,
            **changes,
        }
        (place / "task.json").write_text(json.dumps(task))
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ECHELON", "PYTHON"))},
            "ECHELON_FIRST_WORKER": str(worker - worker % 2),  # as if in groups of two
            "JOB_COMPLETION_INDEX": str(worker % 2),
            "ECHELON_POD_IP": "127.0.0.1",
            "ECHELON_FAILURES": "" if failures is None else str(failures),
            **(env or {}),
        }
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(
                [*before, python, str(self.archive), str(place / "task.json")],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        self.processes[worker] = process
        return process

    def start_all(self, **more: Any) -> None:
        """Start them in reverse, so that the members call before anybody listens."""
        for worker in reversed(range(self.task["groups"][0]["workers"])):
            self.start(worker, **more)

    def code(self, worker: int) -> int:
        """How the agent of a worker exits."""
        return self.processes[worker].wait(PATIENCE)

    def log(self, worker: int) -> list[bytes]:
        """The lines that the agent of a worker has written."""
        return (self.place(worker) / "log").read_bytes().splitlines()

    def events(self, worker: int = 0) -> list[dict[str, Any]]:
        """What the log of a worker tells."""
        lines = [parse_line(raw, worker) for raw in self.log(worker)]
        return [json.loads(line.payload) for line in lines if isinstance(line, EventLine)]

    def kinds(self, worker: int = 0, of: int | None = None) -> list[str]:
        """The kinds of events in a worker's log, or only those about another worker."""
        return [event["kind"] for event in self.events(worker) if of is None or event.get("worker") == of]

    def said(self, worker: int) -> list[str]:
        """What the ranks of a worker have said."""
        lines = [parse_line(raw, worker) for raw in self.log(worker)]
        return [line.text for line in lines if isinstance(line, LogLine) and line.rank is not None]

    def wait_for(self, kind: str, worker: int = 0, of: int | None = None) -> None:
        """Wait until an event stands in a worker's log."""
        wait_until(lambda: kind in self.kinds(worker, of), f"{kind} in the log of worker {worker}")

    def wait_up(self, *workers: int) -> None:
        """Wait until the ranks of these workers have said `up`."""
        wait_until(lambda: all("up" in self.said(worker) for worker in workers), "the ranks to be up")

    def last_words(self, worker: int = 0) -> dict[str, Any]:
        """The termination message of a worker's container."""
        data = (self.place(worker) / "termination").read_bytes()
        words: dict[str, Any] = json.loads(data.rpartition(b"\n")[2])
        return words

    def verdict(self) -> dict[str, Any]:
        """What the leader has decided."""
        verdict: dict[str, Any] = json.loads((self.place(0) / "state" / "verdict.json").read_bytes())
        return verdict

    def order(
        self, worker: int, *words: str, python: str = sys.executable
    ) -> subprocess.CompletedProcess[str]:
        """Speak to the agent of a worker as a client does, by a command in its pod."""
        return subprocess.run(
            [python, str(self.archive), "control", str(self.place(worker) / "state" / "c"), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def close(self) -> None:
        """End what is left."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        self._reservation.release()
