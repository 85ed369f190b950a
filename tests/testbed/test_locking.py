"""Locks between test runs: who waits is told for whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.locking import held, holders, parse_holders, tried
from tests.conftest import wait_until

from testbed import locking

LOCKS = """\
1: FLOCK  ADVISORY  WRITE 12987 fe:00:77 0 EOF
1: -> FLOCK  ADVISORY  WRITE 500 fe:00:77 0 EOF
2: FLOCK  ADVISORY  READ 13155 fe:00:9980578 0 EOF
3: FLOCK  ADVISORY  READ 13155 fe:00:9980578 0 EOF
4: FLOCK  ADVISORY  READ 13156 fe:00:9980578 0 EOF
5: POSIX  ADVISORY  WRITE 9 fe:00:77 0 EOF
6:
"""
HOLD = "import sys\nfrom pathlib import Path\nfrom testbed.locking import held\n"
HOLD += "with held(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"


def test_who_holds_a_file() -> None:
    assert parse_holders(LOCKS, 77) == [12987]
    assert parse_holders(LOCKS, 9980578) == [13155, 13156]
    assert parse_holders(LOCKS, 7) == []


def test_a_lock_that_is_free_is_had_without_a_word(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "new" / "lock"
    with held(lock, shared=True), held(lock, shared=True), tried(lock) as alone:
        assert not alone
    with tried(lock) as alone:
        assert alone
    assert capfd.readouterr().err == ""


def test_who_waits_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setattr(locking, "SAID_AFTER", 0.1)
    said: list[str] = []

    def let_go(text: str) -> None:
        said.append(text)
        holder.stdin.close()  # type: ignore[union-attr]

    monkeypatch.setattr(locking, "say", let_go)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, lock],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert holders(lock) == [holder.pid]
        with held(lock):
            assert holders(lock) == [os.getpid()]
    assert said == [f"testbed: waiting for {lock}, held by process {holder.pid} in {tmp_path}"]
    wait_until(lambda: holders(lock) == [], "the lock to be free")
