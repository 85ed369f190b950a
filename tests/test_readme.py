"""The commands of the README and of the pages for this machine, executed as they stand, in a folder with a
small script of every kind they name.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.nvidia_smi import StandIn
from tests.conftest import PATIENCE

ROOT = Path(__file__).parents[1]
README, GUIDE, KUBERNETES = "README.md", "docs/guide-local.md", "docs/guide-kubernetes.md"
METRICS, SWEEPS = "docs/metrics.md", "docs/guide-sweeps.md"
COMMANDS = {README: 10, GUIDE: 16, METRICS: 10, SWEEPS: 9}  # how many each page has, at the least
SCRIPT = """
import os, sys
open(os.path.join(os.environ["ECHELON_OUTPUT"], "model.pt"), "w").write("weights")
print("trained with", sys.argv[1:])
"""


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [text for named, text in fences if named == language]


def commands(page: str, language: str = "") -> list[list[str]]:
    """Every line that calls echelon, its comment left out."""
    lines = [line for block in blocks(page, language) for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("echelon ")]


def file_in(page: str, language: str, name: str) -> str:
    """The content of the file that a page shows, which its first line names."""
    (found,) = (block for block in blocks(page, language) if block.startswith(f"# {name}\n"))
    return found


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the guide takes for granted: a script, a package, a program, a job file, four GPUs."""
    here = Path.cwd()
    (here / "train.py").write_text(SCRIPT)
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").touch()
    (here / "pkg" / "train.py").write_text(SCRIPT)
    (here / "any-program").write_text("#!/bin/sh\necho rank $ECHELON_RANK: $@\n")
    (here / "any-program").chmod(0o755)
    (here / "job.yaml").write_text(file_in(GUIDE, "yaml", "job.yaml"))
    gpus = StandIn(here / "imagined")
    gpus.show(4)
    monkeypatch.setenv("PATH", f"{gpus.folder}:{os.environ['PATH']}")
    return here


@pytest.mark.slow
@pytest.mark.parametrize("page", COMMANDS)
def test_every_command_works_as_it_stands_there(project: Path, page: str) -> None:
    if page != GUIDE:
        (project / "train.py").write_text(file_in(page, "python", "train.py"))
    given = commands(page)
    assert len(given) >= COMMANDS[page]
    for words in given:
        done = subprocess.run(
            [sys.executable, "-m", "echelon.cli.main", *words[1:]],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
            env={**os.environ, "PYTHONPATH": f"{project}:{os.environ.get('PYTHONPATH', '')}"},
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    if page != METRICS:
        assert (project / "out" / "model.pt").stat().st_size > 0


@pytest.mark.slow
def test_the_python_example_runs(project: Path) -> None:
    (python,) = blocks(GUIDE, "python")
    before = "import os\ndef train(lr):\n    open(os.environ['ECHELON_OUTPUT'] + '/model.pt', 'w').close()\n"
    after = 'assert {each.state for each in echelon.runs()} == {"succeeded"}\n'
    # The run that the last lines attach to is one named fm, as in the commands above.
    text = before + python.replace("workers=2)  # a script\n", 'workers=2, name="fm")\nrun.wait()\n') + after
    Path("example.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "example.py"], capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_readme_is_short() -> None:
    assert len((ROOT / README).read_text(encoding="utf-8").splitlines()) < 150
