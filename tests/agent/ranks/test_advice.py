"""Errors that users of PyTorch meet: in one line, and with what helps."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.agent.ranks.report import find_error, find_hint

# "recorded" are of ranks with Gloo and of DataLoader workers; "reported" are what users have reported, of
# GPUs, NCCL and other machines (those "recorded" with a GPU are of an H200).
ERRORS = json.loads((Path(__file__).parent / "errors.json").read_text())


@pytest.mark.parametrize("case", [*ERRORS["recorded"], *ERRORS["reported"]])
def test_what_users_meet(case: dict[str, str | None]) -> None:
    """`short` is None where the error is short enough."""
    said, short, hint = case["said"] or "", case["short"], case["hint"]
    error = find_error(b"Traceback (most recent call last):\n  File x\n" + said.encode() + b"\n")
    assert error == (short or said.partition("\n")[0])
    found = find_hint(error, "/bin/python3", True)
    assert found is None if hint is None else hint in (found or "")


@pytest.mark.parametrize("case", ERRORS["aborted"])
def test_what_users_meet_that_ends_in_c(case: dict[str, str]) -> None:
    """An exception of C++ that nothing caught; torch's and Python's stacks follow it."""
    stacks = "Exception raised from f at x.cpp:1 (most recent call first):\nframe #0: f + 0x9d\n\n"
    error = find_error(f"{case['said']}\n{stacks}Fatal Python error: Aborted\n\nThread 0x0".encode())
    assert error == case["short"]
    assert case["hint"] in (find_hint(error, "/bin/python3", True) or "")


def test_a_dataloader_s_worker_that_was_killed_is_the_cause_of_what_follows() -> None:
    """As recorded of a worker that got SIGBUS: the second exception is raised from the first."""
    error = find_error(
        b"Traceback (most recent call last):\n  File a\n"
        b"RuntimeError: DataLoader worker (pid 15911) is killed by signal: Bus error. It is possible that"
        b" dataloader's workers are out of shared memory.\n\n"
        b"The above exception was the direct cause of the following exception:\n\n"
        b"Traceback (most recent call last):\n  File b\n"
        b"RuntimeError: DataLoader worker (pid(s) 15911) exited unexpectedly\n"
    )
    assert error == "RuntimeError: DataLoader worker (pid 15911) is killed by signal: Bus error"


def test_nccl_without_a_last_error_stays_as_it_is() -> None:
    said = "DistBackendError: NCCL error in: x.cpp:1, unhandled system error, NCCL version 2.20.5"
    assert find_error(b"Traceback (most recent call last):\n  x\n" + said.encode()) == said


def _made_for_another_system(folder: Path, change: Callable[[bytes], bytes]) -> str:
    """What a shell says that starts /bin/true in another form."""
    program = folder / "train"
    program.write_bytes(change(Path("/bin/true").resolve().read_bytes()))
    program.chmod(0o755)
    done = subprocess.run(["sh", "-c", f"{program}; exit $?"], stderr=subprocess.PIPE, check=False)
    assert done.returncode
    return find_error(done.stderr) or ""


def test_a_program_for_another_processor(tmp_path: Path) -> None:
    machine = 0x28 if platform.machine() == "aarch64" else 0xB7  # Arm's 32 or 64 bits
    error = _made_for_another_system(tmp_path, lambda text: text[:18] + bytes([machine]) + text[19:])
    assert "another processor than the node has" in (find_hint(error, "/bin/python3", True) or ""), error


def test_a_program_for_a_newer_system(tmp_path: Path) -> None:
    found = set(re.findall(rb"GLIBC_2\.\d\d\b", Path("/bin/true").resolve().read_bytes()))
    if not found:
        pytest.skip("needs a system with glibc")

    def to_newer(text: bytes) -> bytes:
        for version in found:
            text = text.replace(version, b"GLIBC_2.99")
        return text

    error = _made_for_another_system(tmp_path, to_newer)
    assert "--image chooses a newer one" in (find_hint(error, "/bin/python3", True) or ""), error


@pytest.mark.parametrize("error", ["", "ValueError: boom", "KeyError: 'port'"])
def test_what_is_not_in_the_table_has_no_hint(error: str) -> None:
    assert find_hint(error, "/bin/python3", False) is None
