"""What is said of a program that cannot be started."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from echelon.agent.ranks.rank import describe_no_start, find_start_hint
from echelon.agent.ranks.report import find_error, find_hint

SCRIPT = "print('hi')\n"


def start_in(folder: Path, program: str) -> Exception:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - which one is what the hint is made of
        subprocess.run([program], cwd=folder, check=False)
    return caught.value


@pytest.mark.parametrize(
    ("program", "mode", "hint"),
    [
        ("no-such-program", None, "no-such-program is not on the PATH; activate"),
        ("mpirun-of-nobody/mpirun", None, None),
        ("./train.py", 0o644, "`echelon run ./train.py` runs it with Python; chmod +x"),
        ("./train.sh", 0o644, "chmod +x ./train.sh lets"),
        ("./train.sh", 0o755, "its first line must name"),
        (".", None, None),
    ],
)
def test_what_helps_to_start_it(tmp_path: Path, program: str, mode: int | None, hint: str | None) -> None:
    if mode is not None:
        (tmp_path / program).write_text(SCRIPT)
        (tmp_path / program).chmod(mode)
    found = find_start_hint(program, start_in(tmp_path, program), str(tmp_path), in_pod=False)
    assert found is None if hint is None else (found or "").startswith(hint)


def test_in_a_pod_it_is_the_image_that_lacks_it(tmp_path: Path) -> None:
    error = start_in(tmp_path, "no-such-program")
    assert "--image" in (find_start_hint("no-such-program", error, str(tmp_path), in_pod=True) or "")


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("#!/no/such/sh", "/no/such/sh"),
        ("#!/bin/sh\r", "/bin/sh and a carriage return; save it with Unix line ends"),
    ],
)
def test_a_script_is_there_but_not_what_runs_it(tmp_path: Path, first: str, says: str) -> None:
    (tmp_path / "train.sh").write_bytes(f"{first}\necho hi\n".encode())
    (tmp_path / "train.sh").chmod(0o755)
    error = start_in(tmp_path, "./train.sh")
    said = describe_no_start("./train.sh", error, str(tmp_path))
    assert said == f"cannot start ./train.sh: No such file or directory; its first line names {says}"


# BUG: the hint was that its first line must name a program.
def test_a_program_for_another_processor(tmp_path: Path) -> None:
    program = bytearray(Path("/bin/true").read_bytes())
    program[18:20] = b"\xf3\x00" if os.uname().machine != "riscv64" else b"\x3e\x00"  # its machine: RISC-V
    (tmp_path / "train").write_bytes(program)
    (tmp_path / "train").chmod(0o755)
    error = start_in(tmp_path, "./train")
    hint = find_start_hint("./train", error, str(tmp_path), in_pod=True)
    assert hint == "the program or the image was built for another processor than the node has"
    shell = subprocess.run(["bash", "-c", "./train; :"], cwd=tmp_path, capture_output=True, check=False)
    assert find_hint(find_error(shell.stderr), "python3", in_pod=False) == (
        "the program was built for another processor"
    )


def test_a_program_for_a_newer_system(tmp_path: Path) -> None:
    """One that wants a version of glibc which there is not yet."""
    program = Path("/bin/true").read_bytes()
    wanted = max(set(re.findall(rb"GLIBC_2\.\d\d(?=\0)", program)), default=b"")
    if not wanted:
        pytest.skip("needs a /bin/true that is linked with glibc")
    (tmp_path / "train").write_bytes(program.replace(wanted, b"GLIBC_2.99"))
    (tmp_path / "train").chmod(0o755)
    done = subprocess.run(["./train"], cwd=tmp_path, capture_output=True, check=False)
    error = find_error(done.stderr)
    assert "version `GLIBC_2.99' not found" in (error or "")
    assert "--image chooses a newer one" in (find_hint(error, "python3", in_pod=True) or "")
