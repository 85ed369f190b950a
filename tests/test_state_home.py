"""Where this machine's state is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.errors import StateTrouble
from echelon.state_home import state_home


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
    with pytest.raises(StateTrouble, match="is no absolute path") as caught:
        state_home()
    assert "ECHELON_HOME" in caught.value.hint


def test_a_home_that_no_user_has_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_HOME", "~nosuchuser/state")
    with pytest.raises(StateTrouble, match="nosuchuser") as caught:
        state_home()
    assert caught.value.hint
