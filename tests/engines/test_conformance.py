"""The engine conformance suite, for every engine there is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from testbed.patience import FACTOR
from tests.engines.conformance import EngineConformance
from tests.engines.programs import ASK, LINES, SCRIPTS

from echelon.admission import admit
from echelon.engines import task
from echelon.engines.local.engine import LocalEngine
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, Program, one_node
from echelon.model.job import Job


def talks(rank: int, _restart: int) -> Act:
    return Act(lines=(*(f"rank {rank} line {number}" for number in range(LINES)), "the end"))


def fails(rank: int, _restart: int) -> Act:
    if rank != 1:
        return Act(lasts=True)
    return Act(lines=("about to fail",), error="ValueError: bad luck", exit_code=3)


def recovers(rank: int, restart: int) -> Act:
    if restart:
        return Act(lines=(f"restart {restart}",))
    return Act(error="RuntimeError: first try") if rank == 0 else Act(lasts=True)


def falls_apart(rank: int, _restart: int) -> Act:
    error = "ConnectionResetError: [Errno 104] Connection reset by peer"
    return (Act(lasts=True), Act(error="ValueError: bad luck"), Act(error=error))[rank]


PLAYS: dict[str, Program] = {
    "talks.py": talks,
    "fails.py": fails,
    "measures.py": Act(lines=tuple(f"step={step} loss={1 / step}" for step in (1, 2, 4))),
    "lasts.py": Act(lines=("ready",), lasts=True),
    "computes.py": Act(cpus=1.0),
    "saves.py": Act(lines=("ready",), lasts=True, interrupted=("saved",)),
    "refuses.py": Act(lines=("ready",), lasts=True),
    "writes.py": Act(
        lines=("written",), files={"model/weights.bin": bytes(range(256)), "notes.txt": b"all is well"}
    ),
    "recovers.py": recovers,
    "keeps-failing.py": lambda _rank, restart: Act(error=f"try {restart}"),
    "is-killed.py": Act(lines=("so far",), exit_code=-9),
    "serves.py": lambda rank, _restart: Act(lasts=True) if rank == 2 else Act(lines=("done",)),
    "falls-apart.py": falls_apart,
}


class MemoryHarness:
    """Plays instead of scripts."""

    names_devices = True

    def __init__(self) -> None:
        self.engine = MemoryEngine(PLAYS, admit=admit)

    def job(self, program: str, *, name: str = "the-run", **more: Any) -> Job:
        return Job(name=name, script=program, framework="plain", **more)

    def provide_gpus(self, count: int) -> None:
        self.engine = MemoryEngine(PLAYS, cluster=one_node(gpus=count), admit=admit)

    def read_result(self, results: str, path: str) -> bytes:
        return self.engine.results[results][path]


class LocalHarness:
    """Real processes, in folders of the test's own."""

    names_devices = True

    def __init__(self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = LocalEngine(home)
        self._scripts = tmp_path / "scripts"
        self._scripts.mkdir()
        for name, text in SCRIPTS.items():
            (self._scripts / name).write_text(ASK + text)
        self._monkeypatch = monkeypatch
        # `falls-apart.py` holds its agent up; however long that takes here, it is not lost.
        monkeypatch.setattr(task, "LOST_AFTER", 60.0 * FACTOR)

    def job(self, program: str, *, name: str = "the-run", **more: Any) -> Job:
        script = str(self._scripts / program)
        return Job(
            name=name, script=script, python=sys.executable, framework="plain", cwd=str(Path.cwd()), **more
        )

    def provide_gpus(self, count: int) -> None:
        """A stand-in for nvidia-smi, which answers as one with that many idle GPUs does."""
        rows = "".join(f"{number}, GPU-{number}, Stand-in, 16384, 0, 0\\n" for number in range(count))
        program = self._scripts / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncase \"$1\" in --query-gpu=*) printf '{rows}' ;; esac\n")
        program.chmod(0o755)
        self._monkeypatch.setenv("PATH", f"{self._scripts}:{os.environ['PATH']}")
        self._monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def read_result(self, results: str, path: str) -> bytes:
        return (Path(results) / path).read_bytes()


class TestMemory(EngineConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryHarness:
        monkeypatch.chdir(tmp_path)
        return MemoryHarness()


class TestLocal(EngineConformance):
    @pytest.fixture
    def harness(self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHarness:
        return LocalHarness(home, tmp_path, monkeypatch)
