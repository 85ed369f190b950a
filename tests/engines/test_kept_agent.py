"""The agent's archive in the state folder: the one with bytecode is shipped while its file is whole."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from echelon.agent.pyz import bytecode_name
from echelon.bundle.zipapp import agent_archive
from echelon.state_home import state_home

_SHIP = (
    "from echelon.engines.kept_agent import keep_agent, shipped_agent; found = shipped_agent(); keep_agent();"
)
_AND_SAY = "import sys; sys.stdout.buffer.write(found)"


def shipped(code: str = _SHIP + _AND_SAY) -> bytes:
    """What another process ships."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout


def kept() -> list[Path]:
    return sorted((state_home() / "agents").glob("*"))


def has_bytecode(archive: bytes) -> bool:
    return bytecode_name() in zipfile.ZipFile(io.BytesIO(archive)).namelist()


def test_an_archive_is_kept_once_and_found_again_without_being_made() -> None:
    assert shipped() == agent_archive(), "the first does not wait for bytecode"
    [path] = kept()
    written = path.stat().st_mtime_ns
    forbid = "import zlib; zlib.compressobj = None;"
    assert has_bytecode(shipped(forbid + _SHIP + _AND_SAY))
    assert (kept(), path.stat().st_mtime_ns) == ([path], written)


def test_to_look_for_it_writes_nothing() -> None:
    assert shipped(_SHIP.replace("keep_agent();", "") + _AND_SAY) == agent_archive()
    assert not state_home().exists()


@pytest.mark.parametrize("harm", [b"", b"\0" * 32, b"\0" * 100_000])
def test_a_damaged_one_is_made_anew(harm: bytes) -> None:
    shipped()
    [path] = kept()
    path.write_bytes(harm)
    assert shipped() == agent_archive()
    assert has_bytecode(shipped())


def test_one_that_was_cut_off_is_made_anew() -> None:
    shipped()
    [path] = kept()
    path.write_bytes(path.read_bytes()[:-1])
    assert shipped() == agent_archive()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_one_that_others_may_write_is_not_used(mode: int) -> None:
    shipped()
    [path] = kept()
    path.chmod(mode)
    assert shipped() == agent_archive()
    assert has_bytecode(shipped()), "it was made anew"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user needs root")
def test_one_of_another_user_is_not_used() -> None:
    shipped()
    [path] = kept()
    os.chown(path, 65534, 65534)
    assert shipped() == agent_archive()


def test_those_of_other_versions_are_forgotten_in_time() -> None:
    folder = state_home() / "agents"
    folder.mkdir(parents=True)
    for name, days in (("old.pyz", 40), ("recent.pyz", 3)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - days * 86400,) * 2)
    shipped()
    assert {"recent.pyz"} == {path.name for path in kept()} & {"old.pyz", "recent.pyz"}


@pytest.mark.parametrize("home", ["file", "~nobody-of-this-name/state"])
def test_a_state_folder_that_cannot_be_used_costs_no_run(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ECHELON_HOME", home if home.startswith("~") else str(tmp_path / home))
    assert shipped() == agent_archive()
