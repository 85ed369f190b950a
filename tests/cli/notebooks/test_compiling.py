"""`echelon notebook compile`, as a user calls it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml
from tests.notebook.books import write_book

Call = Callable[..., subprocess.CompletedProcess[str]]
CELLS = [
    ("pipeline-parameters", "n = 3"),
    ("step:load", "data = list(range(n))"),
    ("step:add prev:load", "total = sum(data)"),
    ("pipeline-metrics", "total"),
]


def test_a_script_with_a_parameter(cli: Call) -> None:
    write_book(Path("add.ipynb"), CELLS)
    done = cli("notebook", "compile", "--to", "python", "add.ipynb", "--param", "n=5")
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([sys.executable, "-"], input=done.stdout, capture_output=True, text=True, check=True)
    assert ran.stdout == "total: 10\n"


def test_for_tekton_it_writes_what_to_apply_and_what_to_create(cli: Call) -> None:
    write_book(Path("add.ipynb"), CELLS)
    words = ("notebook", "compile", "--to", "tekton", "add.ipynb")
    refused = cli(*words)
    assert refused.returncode == 110, refused.stderr
    assert "--image" in refused.stderr
    done = cli(*words, "--image", "python:3.12", "--into", "made", "--param", "n=5")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in Path("made").iterdir()) == ["add-needed.yaml", "add-run.yaml"]
    run = yaml.safe_load(Path("made/add-run.yaml").read_text())
    assert run["spec"]["params"] == [{"name": "n", "value": "5"}]
    assert cli(*words, "--image", "python:3.12", "--param", "n=5").stdout == "".join(
        Path(f"made/add-{part}.yaml").read_text() for part in ("needed", "run")
    )


def test_what_is_for_tekton_is_no_option_of_a_script(cli: Call) -> None:
    write_book(Path("add.ipynb"), CELLS)
    done = cli("notebook", "compile", "--to", "python", "add.ipynb", "--image", "python:3.12")
    assert done.returncode == 2
    assert "--image is for --to tekton" in done.stderr
