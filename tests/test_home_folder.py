"""Users without a home folder, and paths that begin with one that nobody has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from echelon.bundle.project import check_root
from echelon.engines.kubernetes.client.login.kubeconfig import is_configured, load_access
from echelon.engines.local.checkup import check_up
from echelon.engines.local.engine import LocalEngine
from echelon.errors import InvalidJob, StateTrouble, Unavailable
from echelon.home_folder import expanded, home_folder
from echelon.image.registry.credentials import config_file
from echelon.kubeflow.here import parse_maps


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that the system does not know, as a container may have one."""
    monkeypatch.setattr(os, "getuid", lambda: 1_234_567)
    for name in ("HOME", "ECHELON_HOME", "XDG_STATE_HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert home_folder() == expanded("~") == Path("/home/ada")
    assert home_folder({"HOME": "/home/bob"}) == Path("/home/bob")
    assert expanded("~/x") == Path("/home/ada/x")
    assert expanded("~nosuchuser/x") == Path("~nosuchuser/x")


@pytest.mark.usefixtures("nobody")
def test_without_one_each_says_what_it_lacks_or_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert home_folder() is None
    monkeypatch.chdir(tmp_path)
    check_root(tmp_path)
    with pytest.raises(Unavailable, match="no home folder") as refused:
        load_access()
    assert "KUBECONFIG" in refused.value.hint
    assert not is_configured()
    assert config_file() == Path("/.docker/config.json")
    engine = LocalEngine()  # `doctor` makes one
    with pytest.raises(StateTrouble, match="no home folder"):
        engine.names()
    state = next(each for each in check_up(sys.executable) if each.what == "state folder")
    assert (state.level, state.fix) == ("missing", "set ECHELON_HOME")


def test_somebody_whom_nobody_knows_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="names nothing on this machine"):
        parse_maps(["/data=~nosuchuser/data"], tmp_path)
