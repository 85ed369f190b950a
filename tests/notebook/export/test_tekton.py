"""A pipeline for Tekton: the whole of it in a golden file, and what must hold of any.

`ECHELON_WRITE_GOLDEN=1 pytest tests/notebook/export/test_tekton.py` writes the file anew; read the difference
before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.notebook.books import read_book

from echelon.model.settings import NAMES, Settings
from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.export.files import as_yaml
from echelon.notebook.export.tekton import Exported, RunClaim, as_tekton, task_names, text_of

GOLDEN = Path(__file__).parent / "golden"
CELLS = [
    ("imports", "import math"),
    ("pipeline-parameters", "n: int = 3\nscale = 1.5\nlabel = 'a b'"),
    ("step:load limit:cpu:2 limit:memory:1Gi secret:keys:token:TOKEN", "data = list(range(n))"),
    ("step:add_up prev:load distribute:torch workers:2 gpus:1 label:team:a", "total = sum(data)"),
    ("step:tell prev:add_up image:other:2 annotation:note:x", "answer = total * scale"),
    ("pipeline-metrics", "answer"),
]
PLAIN = [("step:load", "x = 1"), ("step:tell prev:load", "y = x")]


def exported(folder: Path, cells: Any = CELLS, metadata: Any = None, **given: Any) -> Exported:
    pipeline = read_book(folder, cells, {}, metadata=metadata)
    own = {"image": "python:3.12"} | {name: value for name, value in given.items() if name in NAMES}
    claim = RunClaim(**{name: value for name, value in given.items() if name not in NAMES})
    return as_tekton(pipeline, Settings(**own), claim, b"the program")


def test_golden(tmp_path: Path) -> None:
    found = exported(tmp_path, namespace="team", restarts=1)
    text, path = as_yaml([*found.needed, found.run]), GOLDEN / "tekton.yaml"
    if os.environ.get("ECHELON_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_yaml_reads_as_the_same_objects_and_quotes_what_some_take_for_booleans(tmp_path: Path) -> None:
    found = exported(tmp_path)
    objects = [*found.needed, found.run]
    assert list(yaml.safe_load_all(as_yaml(objects))) == objects
    assert '- name: "n"' in as_yaml([found.run])


def test_without_a_distributed_step_nothing_may_make_jobs(tmp_path: Path) -> None:
    found = exported(tmp_path, PLAIN)
    assert [each["kind"] for each in found.needed] == ["ConfigMap"]
    assert "taskRunSpecs" not in found.run["spec"]


def test_another_content_is_another_config_map(tmp_path: Path) -> None:
    one, same = exported(tmp_path, PLAIN), exported(tmp_path, PLAIN)
    other = exported(tmp_path, [*PLAIN, ("step:more", "z = 1")])
    names = [each.needed[0]["metadata"]["name"] for each in (one, same, other)]
    assert names[0] == names[1] != names[2]


def test_an_image_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidNotebook, match="step load: it has no image"):
        exported(tmp_path, PLAIN, image="")
    about = {"kubeflow_notebook": {"docker_image": "own:1"}}
    found = exported(tmp_path, PLAIN, metadata=about, image="")
    task = found.run["spec"]["pipelineSpec"]["tasks"][0]
    assert task["taskSpec"]["steps"][0]["image"] == "own:1"


def test_volumes_of_the_notebook(tmp_path: Path) -> None:
    volumes = [
        {"name": "datasets", "type": "pvc", "mount_point": "/data"},
        {"name": "scratch", "type": "new_pvc", "mount_point": "/scratch", "size": 1},
    ]
    found = exported(tmp_path, metadata={"kubeflow_notebook": {"volumes": volumes}})
    for task in found.run["spec"]["pipelineSpec"]["tasks"]:
        claims = [each.get("persistentVolumeClaim") for each in task["taskSpec"]["volumes"]]
        assert claims == [None, {"claimName": "datasets"}]
        assert task["taskSpec"]["steps"][0]["volumeMounts"][1]["mountPath"] == "/data"
    assert found.notes == ("the volume 'scratch' is left out: only claims that exist (pvc) are mounted",)


def test_workspaces(tmp_path: Path) -> None:
    def workspace(**wishes: Any) -> Any:
        return exported(tmp_path, PLAIN, **wishes).run["spec"]["workspaces"]

    assert workspace(claim="mine") == [{"name": "run", "persistentVolumeClaim": {"claimName": "mine"}}]
    (made,) = workspace(shared=True, size="5Gi", storage_class="fast")
    spec = made["volumeClaimTemplate"]["spec"]
    assert spec["accessModes"] == ["ReadWriteMany"]
    assert spec["storageClassName"] == "fast"
    assert spec["resources"] == {"requests": {"storage": "5Gi"}}


def test_a_notebook_that_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(InvalidNotebook, match="more than a ConfigMap holds"):
        exported(tmp_path, [("step:load", f"x = {'a' * 1_000_000!r}")])


def test_names_of_tasks_are_what_tekton_takes(tmp_path: Path) -> None:
    cells = [(f"step:{name}", "pass") for name in ("_a_", "a", "a__b", "__", "x" * 80)]
    names = list(task_names(read_book(tmp_path, cells, {}).steps).values())
    assert names == ["a", "a-2", "a-b", "step", "x" * 59]


@pytest.mark.parametrize("value", ["plain", "'quoted'", "5", "", "None", "two\nlines"])
def test_a_text_parameter_reads_as_it_was(tmp_path: Path, value: str) -> None:
    from echelon.notebook.beside.parameters import parse_text

    pipeline = read_book(tmp_path, [("pipeline-parameters", f"p = {value!r}"), ("step:a", "q = p")], {})
    assert parse_text("str", text_of(pipeline, pipeline.parameters[0])) == value
