"""What this machine keeps for itself: where, and of which runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.engines.machine import Fetched, Submissions, is_dead_process, process_name
from echelon.state_home import state_home


def test_a_submission_is_remembered_by_every_process_until_it_is_forgotten(tmp_path: Path) -> None:
    Submissions().remember("uid-1", tmp_path / "runs" / "fm")
    assert Submissions().results_of("uid-1") == tmp_path / "runs" / "fm"
    assert Submissions().results_of("uid-2") is None
    Submissions().forget("uid-1")
    assert Submissions().results_of("uid-1") is None


def test_what_was_fetched_is_known_to_every_process_until_the_run_is_resumed_or_forgotten() -> None:
    fetched = Fetched(path="/runs/fm", missing=("worker 1: its files",))
    Submissions().note_fetched("uid-1", 100.5, fetched)
    assert Submissions().fetched("uid-1", 100.5) == fetched
    assert Submissions().fetched("uid-1", 200.0) is None, "it was resumed on another machine"
    assert Submissions().fetched("uid-2", 100.5) is None
    Submissions().forget_fetched("uid-1")
    assert Submissions().fetched("uid-1", 100.5) is None
    Submissions().note_fetched("uid-1", 100.5, fetched)
    Submissions().forget("uid-1")
    assert Submissions().fetched("uid-1", 100.5) is None


@pytest.mark.parametrize("kept", ["", "[]", '{"created": 1}', "[" * 100_000])
def test_a_note_that_cannot_be_read_is_none(kept: str) -> None:
    submissions = Submissions()
    submissions.note_fetched("uid-1", 1.0, Fetched())
    (state_home() / "submitted" / "uid-1.fetched.json").write_text(kept)
    assert Submissions().fetched("uid-1", 1.0) is None


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", "x" * 65])
def test_an_odd_uid_reaches_no_other_file(uid: str, tmp_path: Path) -> None:
    submissions = Submissions()
    submissions.forget(uid)
    assert submissions.results_of(uid) is None


def test_a_state_folder_that_cannot_be_written_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "file"))
    submissions = Submissions()
    submissions.remember("uid-1", tmp_path / "r")
    assert submissions.results_of("uid-1") == tmp_path / "r"
    assert Submissions().results_of("uid-1") is None


def test_old_submissions_are_forgotten(tmp_path: Path) -> None:
    Submissions().remember("old", tmp_path)
    file = state_home() / "submitted" / "old.json"
    os.utime(file, (1, 1))
    Submissions().remember("new", tmp_path)
    assert not file.exists()


def test_a_process_of_this_machine_that_has_ended_is_known_as_dead() -> None:
    code = "from echelon.engines.machine import process_name; print(process_name())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert is_dead_process(ended.stdout.strip())
    assert not is_dead_process(process_name())
    assert not any(map(is_dead_process, ("", "/", "x", "a/b/c/d", f"{socket.gethostname()}/no/x")))


def test_a_process_of_another_container_of_this_name_is_not_known_as_dead() -> None:
    """Its number may be nobody's here. So is that of a machine of the same name, and of an older echelon."""
    host, here, _number, word = process_name().split("/")
    ended = str(int(Path("/proc/sys/kernel/pid_max").read_text()) + 1)
    assert is_dead_process(f"{host}/{here}/{ended}/{word}")
    assert not is_dead_process(f"{host}/{'0' * len(here)}/{ended}/{word}")
    assert not is_dead_process(f"{host}/{ended}/{word}")
    code = "from echelon.engines.machine import process_name; print(process_name())"
    inside = ["unshare", "--user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    other = subprocess.run(inside, capture_output=True, text=True, check=False)
    if other.returncode == 0:  # where the system lets users make containers
        assert other.stdout.split("/")[0] == host
        assert not is_dead_process(other.stdout.strip())
