"""Where this machine's state is kept."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.errors import StateTrouble
from echelon.state_home import check_state_home, state_home

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_where_state_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ECHELON_HOME", "here")
    assert state_home() == tmp_path / "here"
    monkeypatch.setenv("ECHELON_HOME", "~/there")
    assert state_home() == tmp_path / "there"
    monkeypatch.setenv("ECHELON_HOME", "")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert state_home() == Path("/var/state/echelon")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_home() == tmp_path / ".local" / "state" / "echelon"


@pytest.mark.parametrize("home", ["", "here"])
def test_a_home_that_is_no_absolute_path(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be another folder for every working folder."""
    for name in ("ECHELON_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    with pytest.raises(StateTrouble, match="is not an absolute path") as caught:
        state_home()
    assert "ECHELON_HOME" in caught.value.hint


def test_a_home_that_no_user_has_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_HOME", "~nosuchuser/state")
    with pytest.raises(StateTrouble, match="nosuchuser") as caught:
        state_home()
    assert caught.value.hint


def test_a_folder_that_others_may_write_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "it's mine"
    monkeypatch.setenv("ECHELON_HOME", str(folder))
    assert state_home() == folder  # which is made when it is needed
    check_state_home()
    folder.mkdir(mode=0o755)
    assert state_home() == folder
    for mode in (0o775, 0o757, 0o777, 0o1777):
        folder.chmod(mode)
        for call in (state_home, check_state_home):
            with pytest.raises(StateTrouble, match=rf"others may write to .* \(mode {mode:o}\)") as caught:
                call()
            assert f"chmod go-w {shlex.quote(str(folder))}" in caught.value.hint
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "link"))
    assert state_home() == tmp_path / "link"
    folder.chmod(0o777)
    with pytest.raises(StateTrouble):
        state_home()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to any group")
def test_a_group_that_a_kubelet_gave_a_volume_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path))
    os.chown(tmp_path, os.geteuid(), 54321)  # which no user has
    tmp_path.chmod(0o2770)
    assert state_home() == tmp_path
    tmp_path.chmod(0o770)
    with pytest.raises(StateTrouble, match="others may write"):
        state_home()
    another = next(user for user in pwd.getpwall() if user.pw_uid != os.geteuid())
    os.chown(tmp_path, os.geteuid(), another.pw_gid)
    tmp_path.chmod(0o2770)
    with pytest.raises(StateTrouble, match="others may write"):
        state_home()


def test_a_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path))
    tmp_path.chmod(0o700)
    assert state_home() == tmp_path
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(StateTrouble, match=f"belongs to another user \\(id {mine}\\)"):
        state_home()
    monkeypatch.delenv("ECHELON_HOME")
    monkeypatch.setenv("HOME", "nowhere")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    check_state_home()  # that there is none costs no run in a cluster


def test_nothing_in_such_a_folder_is_shown_or_resumed(cli: Cli, home: Path) -> None:
    Path("fails.py").write_text("raise SystemExit(3)")
    assert cli("run", "--name", "fm", "fails.py").returncode == 3
    home.chmod(0o777)
    for words in (["resume", "fm"], ["ps", "-a"], ["status", "fm"], ["run", "fails.py"], ["rm", "fm"]):
        done = cli(*words)
        assert (done.returncode, "others may write to the state folder" in done.stderr) == (115, True), words
    home.chmod(0o700)
    assert cli("rm", "fm").returncode == 0
