"""How long Hypothesis looks, in each of the commands that run tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts, properties

TESTS = """
from hypothesis import given, settings, strategies as st
from tests.properties import examples, load_profile

load_profile()

@given(st.integers(0, 10**9))
def test_plain(number):
    print("plain", number)

@settings(max_examples=examples(200))
@given(st.integers(0, 10**9))
def test_own_count(number):
    print("own", number)
"""


def numbers(folder: Path, profile: str | None) -> dict[str, list[str]]:
    """What the two properties were tried with, in a test run with that profile or none."""
    (folder / "test_small.py").write_text(TESTS)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(parts.__file__).parents[1])}
    if profile:
        environment[properties.VARIABLE] = profile
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-c", "/dev/null", "-p", "no:cacheprovider", folder],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    words = [line.lstrip(".").split() for line in done.stdout.splitlines()]
    return {name: [each[1] for each in words if each[:1] == [name]] for name in ("plain", "own")}


def test_the_gate_tries_the_same_few_each_time(tmp_path: Path) -> None:
    first, second = numbers(tmp_path, None), numbers(tmp_path, properties.GATE)
    assert first == second
    assert 0 < len(first["plain"]) <= 25
    assert 0 < len(first["own"]) <= 25


def test_other_runs_try_many(tmp_path: Path) -> None:
    tried = numbers(tmp_path, properties.FULL)
    assert len(tried["plain"]) >= 90
    assert len(tried["own"]) >= 180


@pytest.mark.parametrize(("choice", "profile"), [("gate", "gate"), ("all", "full"), ("cluster", "full")])
def test_which_profile_a_command_chooses(choice: str, profile: str) -> None:
    assert {each.looks for each in parts.CHOICES[choice]} == {profile}
