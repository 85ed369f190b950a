"""A function becomes a script, and the script is run: by a plain Python, elsewhere, the typed file gone."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, need_python

FILES = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Sent:
    """What became of a program that sent a function: the script's folder, and what running it showed."""

    folder: Path
    made: dict
    refused: dict
    done: subprocess.CompletedProcess | None = None

    @property
    def text(self) -> str:
        return (self.folder / "script.py").read_text(encoding="utf-8")

    @property
    def out(self) -> str:
        assert self.done is not None
        assert self.done.returncode == 0, self.done.stderr + self.text
        return self.done.stdout

    @property
    def message(self) -> str:
        assert self.refused, "it was sent, but should have been refused"
        return self.refused["message"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with nothing in it, to run scripts in."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def run_script(elsewhere: Path):
    """Run a Python file as `python FILE`, by default in an empty folder."""

    def run_script(script: Path, cwd: Path = elsewhere, python: str = sys.executable, **env: str):
        ours = ("PYTHON", "ECHELON")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return subprocess.run(
            [python, str(script)],
            cwd=cwd,
            env={**clean, "PYTHONIOENCODING": "utf-8", **env},
            capture_output=True,
            encoding="utf-8",
            timeout=2 * PATIENCE,
            check=False,
        )

    return run_script


@pytest.fixture
def finish(run_script):
    """Take what a program has written to a folder, and run the script."""

    def finish(folder: Path, *, run: bool = True, python: str = sys.executable) -> Sent:
        refused, made = folder / "refused.json", folder / "made.json"
        if refused.exists():
            return Sent(folder, {}, json.loads(refused.read_text()))
        done = run_script(folder / "script.py", python=python) if run else None
        return Sent(folder, json.loads(made.read_text()), {}, done)

    return finish


@pytest.fixture
def send(tmp_path: Path, run_script, finish):
    """Run a program as `python my.py` that sends `call`; then, with the program gone, run the script."""

    def send(program: str, call: str = "train", **how: Any) -> Sent:
        folder = tmp_path / "sent"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        file = tmp_path / "typed" / "my.py"
        file.parent.mkdir(exist_ok=True)
        tail = f"\nif __name__ == '__main__':\n    import sending\n    sending.send({call})\n"
        file.write_text(textwrap.dedent(program) + tail, encoding="utf-8")
        program_run = run_script(file, tmp_path, SEND_TO=str(folder), PYTHONPATH=str(FILES))
        assert program_run.returncode == 0, program_run.stderr
        file.unlink()
        return finish(folder, **how)

    return send


@pytest.fixture
def other_python():
    """A Python of another minor than this one; without it the test is skipped."""

    def other_python(minor: str) -> str:
        if minor == f"{sys.version_info[0]}.{sys.version_info[1]}":
            pytest.skip(f"needs another Python than {minor}, which runs the tests")
        return need_python(minor)

    return other_python
