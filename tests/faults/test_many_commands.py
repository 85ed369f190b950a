"""Many runs and many commands at the same time: none of them dies by a signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

ECHELON = [sys.executable, "-m", "echelon.cli.main"]


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*ECHELON, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends_of(commands: list[subprocess.Popen[str]]) -> list[int]:
    codes = []
    for command in commands:
        _, told = command.communicate(timeout=PATIENCE * 4)
        assert "Traceback" not in told, told
        codes.append(command.returncode)
    return codes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_once", "rounds"), [(4, 1), pytest.param(25, 8, marks=pytest.mark.soak, id="soak")]
)
def test_no_command_dies_by_a_signal(home: Path, at_once: int, rounds: int) -> None:
    for number in range(rounds):
        names = [f"r{number}-{each}" for each in range(at_once)]
        runs = [start("run", "--name", name, "--", "true") for name in names]
        assert ends_of(runs) == [0] * at_once
        looks = [start(verb, name) for name in names for verb in ("wait", "status", "logs")]
        assert ends_of(looks) == [0] * (3 * at_once)
