"""The README's commands, executed as they stand, in a folder with a small script of every kind they name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.nvidia_smi import StandIn

README = Path(__file__).parents[1] / "README.md"
SCRIPT = """
import os, sys
open(os.path.join(os.environ["ECHELON_OUTPUT"], "model.pt"), "w").write("weights")
print("trained with", sys.argv[1:])
"""

pytestmark = pytest.mark.slow


def blocks(language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return [text for named, text in fences if named == language]


def commands() -> list[list[str]]:
    """Every line that calls echelon, its comment left out."""
    lines = [line for block in blocks("") for line in block.splitlines() if line.startswith("echelon ")]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the README takes for granted: a script, a package, a program, a job file, four GPUs."""
    here = Path.cwd()
    (here / "train.py").write_text(SCRIPT)
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").touch()
    (here / "pkg" / "train.py").write_text(SCRIPT)
    (here / "any-program").write_text("#!/bin/sh\necho rank $ECHELON_RANK: $@\n")
    (here / "any-program").chmod(0o755)
    (yaml,) = (block for block in blocks("yaml") if "# job.yaml" in block)
    (here / "job.yaml").write_text(yaml)
    gpus = StandIn(here / "imagined")
    gpus.show(4)
    monkeypatch.setenv("PATH", f"{gpus.folder}:{os.environ['PATH']}")
    return here


def test_every_command_works_as_it_stands_there(project: Path) -> None:
    given = commands()
    assert len(given) >= 15
    for words in given:
        done = subprocess.run(
            [sys.executable, "-m", "echelon.cli.main", *words[1:]],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONPATH": str(project)},
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert (project / "out" / "model.pt").read_text() == "weights"


def test_the_python_example_runs(project: Path) -> None:
    (python,) = blocks("python")
    before = "import os\ndef train(lr):\n    open(os.environ['ECHELON_OUTPUT'] + '/model.pt', 'w').close()\n"
    after = 'assert {each.state for each in echelon.runs()} == {"succeeded"}\n'
    # The run that the last lines attach to is one named fm, as in the commands above.
    text = before + python.replace("workers=2)  # a script\n", 'workers=2, name="fm")\nrun.wait()\n') + after
    Path("example.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "example.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
