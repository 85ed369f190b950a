"""`echelon ui` on the command line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.cli import main
from echelon.ui import server

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_without_its_packages_it_says_what_to_install(home: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; from echelon.cli import main; sys.exit(main.call(['ui']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 119
    assert "pip install 'echelon[ui]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken(call: Call) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = call("ui", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 119
    assert "is taken" in done.stderr
    assert "--port" in done.stderr


def test_the_address_is_printed_and_opened_without_being_told_to_others(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    pages: list[str] = []

    def open_(address: str) -> bool:
        opened.append(address)
        pages.append(Path(address.removeprefix("file://")).read_text())
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", open_)
    monkeypatch.setattr(server.Server, "run", lambda self: self._socket.close())
    done = call("ui")
    address = done.stdout.strip()
    assert address.startswith("http://127.0.0.1:")
    token = address.partition("#token=")[2]
    assert len(token) >= 43
    assert token not in opened[0]  # the browser's command line is for all to see
    assert address in pages[0]
    assert not Path(opened[0].removeprefix("file://")).exists()
    assert call("ui", "--no-browser").returncode == 0
    assert "address" in json.loads(call("ui", "-o", "json").stdout)
    assert len(opened) == 1


def test_help_does_not_import_it() -> None:
    code = (
        "import sys; from echelon.cli import main; main.call(['--help']); "
        "assert not {'starlette', 'uvicorn', 'echelon.ui', 'echelon.cli.commands.ui'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert "ui" in main.COMMANDS
