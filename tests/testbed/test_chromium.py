"""Whether there is a browser for tests, and what is done where there is none: the machine is a stand-in."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from echelon.errors import Unavailable
from testbed import chromium, debian


class Machine:
    """Programs by name, and who the user is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *programs: str, root: bool) -> None:
        self.programs = set(programs)
        self.installed: list[str] = []
        monkeypatch.delenv(chromium.VARIABLE, raising=False)
        monkeypatch.setattr(
            shutil, "which", lambda name: f"/usr/bin/{name}" if name in self.programs else None
        )
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(debian, "install", self._install)

    def _install(self, packages: list[str]) -> None:
        self.installed += packages
        self.programs |= set(packages)


def test_the_one_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, "chromium", root=False)
    assert (chromium.missing(), chromium.install()) == ("", "/usr/bin/chromium")
    machine.programs.add(chromium.PACKAGE)
    assert chromium.install() == f"/usr/bin/{chromium.PACKAGE}"  # the smallest one
    monkeypatch.setenv(chromium.VARIABLE, "/own/chrome")
    assert chromium.install() == "/own/chrome"
    assert machine.installed == []


def test_root_gets_it_installed_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, "apt-get", root=True)
    assert chromium.missing() == ""
    assert chromium.install() == f"/usr/bin/{chromium.PACKAGE}"
    assert machine.installed == [chromium.PACKAGE]


@pytest.mark.parametrize(("programs", "root"), [(("apt-get",), False), ((), True)])
def test_who_cannot_install_it_is_told(
    monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...], root: bool
) -> None:
    machine = Machine(monkeypatch, *programs, root=root)
    assert "apt-get install chromium-headless-shell" in chromium.missing()
    with pytest.raises(Unavailable, match="needs Chromium"):
        chromium.install()
    assert machine.installed == []
