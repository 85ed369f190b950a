"""What pods of an exported pipeline run, run here in a bare Python; and the variables of workers."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import find_python
from tests.notebook.books import Cells, read_book

from echelon.notebook.analysis.pipeline import Pipeline
from echelon.notebook.export.files import modules_beside
from echelon.notebook.export.pods import Pods, config_map, processes_of, program_archive

CELLS = [
    ("imports", "import pathlib\nfrom own import double"),
    ("pipeline-parameters", "n: int = 3\nlabel = 'a'"),
    ("functions", "def scaled(x, by=n):\n    return x * by"),
    (
        "step:load",
        "class Data(list):\n    pass\n\n\ndata = Data(range(n))\npathlib.Path('f').write_text(label)",
    ),
    (
        "step:tell prev:load",
        "answer = double(sum(scaled(x) for x in data))\nread = pathlib.Path('f').read_text()",
    ),
    ("pipeline-metrics", "answer\nread"),
]


class Pod:
    """The files of a pod, and what it calls."""

    def __init__(self, folder: Path, pipeline: Pipeline, python: str = sys.executable) -> None:
        self.volume, self.mounted, self.results = folder / "volume", folder / "echelon", folder / "results"
        self._python = python
        for each in (self.volume, self.mounted, self.results):
            each.mkdir()
        texts = [code.text for code in pipeline.prelude]
        program = program_archive(modules_beside(folder, texts))
        images = {step.name: "python" for step in pipeline.steps}
        made = config_map(pipeline, Pods(images=images), program)
        (self.mounted / "pipeline.json").write_text(made["data"]["pipeline.json"])
        (self.mounted / "program.zip").write_bytes(base64.b64decode(made["binaryData"]["program.zip"]))

    def call(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        results = {f"ECHELON_RESULT_{name}": str(self.results / name) for name in ("answer", "read")}
        told = {"ECHELON_FOLDER": str(self.volume), "ECHELON_PIPELINE": "book-x1y2z"}
        return subprocess.run(
            [self._python, "-I", str(self.mounted / "program.zip"), *words],
            env={"PATH": os.environ["PATH"], **told, **results, **variables},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.mark.parametrize("version", ["", "3.8"])
def test_steps_hand_on_values_files_parameters_and_results(tmp_path: Path, version: str) -> None:
    python = find_python(version) if version else sys.executable
    if python is None:
        pytest.skip(f"no Python {version} here")
    (tmp_path / "own.py").write_text("import own_too\n\n\ndef double(x):\n    return own_too.TWO * x\n")
    (tmp_path / "own_too.py").write_text("TWO = 2\n")
    pod = Pod(tmp_path, read_book(tmp_path, CELLS, {}), python)
    given = {"ECHELON_PARAMETER_n": "4", "ECHELON_PARAMETER_label": "given"}
    for step in ("load", "tell"):
        done = pod.call("run", step, **given)
        assert done.returncode == 0, done.stderr
    assert (pod.results / "answer").read_text() == str(2 * sum(x * 4 for x in range(4)))
    assert (pod.results / "read").read_text() == "'given'"
    secret = pod.volume / "book-x1y2z" / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_bytes()) == 32


def test_a_parameter_of_another_type_is_refused(tmp_path: Path) -> None:
    pod = Pod(tmp_path, read_book(tmp_path, [*CELLS[1:2], ("step:load", "m = n")], {}))
    done = pod.call("run", "load", ECHELON_PARAMETER_n="many")
    assert done.returncode == 1
    assert done.stderr == "echelon: parameter n: 'many' is not an int\n"


def test_a_failure_names_the_cell(tmp_path: Path) -> None:
    pod = Pod(tmp_path, read_book(tmp_path, [("step:a", "x = 1"), ("step:b prev:a", "y = x / 0")], {}))
    assert pod.call("run", "a").returncode == 0
    done = pod.call("run", "b")
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[-1]
        == "echelon: step b failed in cell 2: ZeroDivisionError: division by zero"
    )


def test_branches_that_changed_one_name_are_refused(tmp_path: Path) -> None:
    cells = [
        ("functions", "def change(x, by):\n    x.append(by)"),
        ("step:a", "x = []"),
        ("step:b prev:a", "change(x, 1)"),
        ("step:c prev:a", "change(x, 2)"),
        ("step:d prev:b prev:c", "y = len(x)"),
    ]
    pod = Pod(tmp_path, read_book(tmp_path, cells, {}))
    for step in ("a", "b", "c"):
        assert pod.call("run", step).returncode == 0
    done = pod.call("run", "d")
    assert done.returncode == 1
    assert "steps 'b' and 'c' changed 'x', and neither comes before the other" in done.stderr


def processes(folder: Path, cells: Cells) -> Any:
    return processes_of(read_book(folder, cells, {}).steps[0])


def test_torch_has_a_process_for_each_gpu(tmp_path: Path) -> None:
    found = processes(tmp_path, [("step:a distribute:torch workers:2 gpus:2", "x = 1")])
    told = [[(each["RANK"], each["LOCAL_RANK"], each["ECHELON_WORKERS"]) for each in own] for own in found]
    assert told == [[("0", "0", "2"), ("1", "1", "2")], [("2", "0", "2"), ("3", "1", "2")]]
    assert {each["MASTER_ADDR"] for own in found for each in own} == {"{job}-0.{job}"}


def test_parameter_servers_are_named_to_tensorflow(tmp_path: Path) -> None:
    found = processes(tmp_path, [("step:a distribute:ParameterServerStrategy workers:2", "x = 1")])
    configured = [json.loads(own[0]["TF_CONFIG"]) for own in found]
    assert configured[0]["cluster"] == {
        "chief": ["{job}-0.{job}:2222"],
        "worker": ["{job}-1.{job}:2222", "{job}-2.{job}:2222"],
        "ps": ["{job}-3.{job}:2222"],
    }
    tasks = [(each["task"]["type"], each["task"]["index"]) for each in configured]
    assert tasks == [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
