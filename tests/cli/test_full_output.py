"""Standard output on a full disk: every command names it, and exits with a code that means it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli.terminal import ECHELON
from tests.conftest import PATIENCE, wait_until

Call = Callable[..., subprocess.CompletedProcess[str]]
FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")


def call_full(words: Sequence[str], **more: object) -> subprocess.CompletedProcess[str]:
    with FULL.open("w") as full:
        return subprocess.run(
            [*ECHELON, *words],
            stdin=subprocess.DEVNULL,
            timeout=2 * PATIENCE,
            check=False,
            text=True,
            **{"stdout": full, "stderr": subprocess.PIPE, **more},  # type: ignore[call-overload]
        )


def test_reading_commands(cli: Call, hello: str) -> None:
    assert cli("run", "--name", "fm", hello).returncode == 0
    for words in (["ps", "-a"], ["status", "fm", "-o", "json"], ["logs", "fm"], ["logs", "fm", "-o", "yaml"]):
        done = call_full(words)
        assert done.returncode == 109, words
        problem, hint = done.stderr.splitlines()
        assert problem == "echelon: cannot write to standard output: No space left on device"
        assert hint.startswith("  hint: ")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_run_goes_on(cli: Call, stay: str, workers: str) -> None:
    done = call_full(["run", "-n", workers, "--name", "fm", stay])
    assert done.returncode == 109
    assert "cannot write to standard output: No space left on device; run fm continues" in done.stderr
    assert "Traceback" not in done.stderr
    wait_until(
        lambda: json.loads(cli("status", "fm", "-o", "json").stdout)["state"] == "running",
        "the run to be seen running",
    )
    Path("go").touch()
    assert cli("wait", "fm").returncode == 0


def test_both_streams_are_full(home: Path) -> None:
    with FULL.open("w") as full:
        done = call_full(["doctor"], stderr=full)
    assert done.returncode == 109


def test_standard_error_is_named_when_it_is_full(home: Path) -> None:
    script = """
import sys
from echelon.cli.following.lines import LinePrinter
from echelon.errors import OutputFailed
from echelon.model.output.log import LogLine
try:
    LinePrinter().show(LogLine(text="x", at=0.0, worker=0, rank=0, stream="stderr"))
except OutputFailed as error:
    print(error.message)
"""
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert done.stdout == "cannot write to standard error: No space left on device\n"
