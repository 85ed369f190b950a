"""One part of the suite as a process of its own: how it ended, which tests failed, and what hung."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from echelon.agent.ranks.processes import die_with_parent
from tests.summary import ASK_FOR_STACKS, REPORT, STACKS

TESTS_FAILED = 1  # pytest's exit code; any other says that the run itself went wrong
TIME_TO_WRITE = 2.0  # seconds that hanging processes get for their stacks


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a part ended; `failures` has the traceback of each test that failed."""

    code: int
    passed: int = 0
    skipped: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""  # of the part as a whole

    @property
    def is_well(self) -> bool:
        """Whether nothing failed."""
        return not self.code and not self.trouble


def run(command: Sequence[str], *, limit: float, environment: Mapping[str, str]) -> Outcome:
    """Run a part, which ends with this process. After `limit` seconds it is ended, and the stacks of what
    hangs are shown.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, stacks = Path(folder, "report"), Path(folder, "stacks")
        stacks.mkdir()
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment, REPORT: str(report), STACKS: str(stacks)},
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no other threads
        )
        try:
            code, trouble = process.wait(limit), ""
        except subprocess.TimeoutExpired:
            trouble = f"not over after {limit:g} s\n{_collect_stacks(stacks)}"
            code = _end(process)
        except BaseException:
            _end(process)
            raise
        told = json.loads(report.read_text()) if report.exists() else {}
    if not trouble and code < 0:
        trouble = f"ended by {signal.Signals(-code).name}"
    elif not trouble and (code > TESTS_FAILED or (code and not told.get("failures"))):
        trouble = f"exit code {code}"
    return Outcome(code=code, trouble=trouble, **told)


def _collect_stacks(folder: Path) -> str:
    """What each process of the part is doing."""
    files = sorted(folder.iterdir(), key=lambda file: int(file.name))
    for file in files:
        try:
            os.kill(int(file.name), ASK_FOR_STACKS)
        except ProcessLookupError:
            continue
    time.sleep(TIME_TO_WRITE)
    return "\n".join(f"process {file.name}:\n{file.read_text()}" for file in files)


def _end(process: subprocess.Popen[bytes]) -> int:
    os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
