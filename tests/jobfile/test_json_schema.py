"""The shipped schema is the one the types make, and it draws the same line as the reader does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.jobfile import read_job_file
from echelon.jobfile.json_schema import schema
from echelon.model.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::echelon.model.former.FormerName")
VALIDATOR = jsonschema.Draft202012Validator(schema())


def accepted_by_reader(document: object, folder: Path) -> bool:
    path = folder / "document.json"
    path.write_text(json.dumps(document))
    try:
        read_job_file(path)
    except InvalidJob:
        return False
    return True


def test_the_shipped_file_is_up_to_date() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "echelon.jobfile.json_schema"], check=True, capture_output=True, text=True
    )
    shipped = resources.files("echelon").joinpath("job.schema.json").read_text(encoding="utf-8")
    assert shipped == printed.stdout, "run: make schema"
    assert shipped.endswith("}\n")
    assert json.loads(shipped) == schema()


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_every_setting_is_in_it_with_its_help() -> None:
    properties = schema()["properties"]
    for each in fields(Settings):
        assert properties[each.name]["description"] == each.metadata["help"]
    assert {"gpu-type", "dry-run", "no-wait", "role", "node-selector", "pull-secret"} < set(properties)


GOOD: list[dict[str, Any]] = [
    {"script": "a.py"},
    {"module": "a.b", "args": ["--lr", 0.1, True, 3]},
    {"command": "prog --x"},
    {"command": ["prog", 1]},
    {"script": "a.py", "workers": 2.0, "gpu-type": "A100", "no_wait": False},
    {"script": "a.py", "roles": {"ps": 1, "chief": {"workers": 1, "gpus": 0, "cpus": 2, "memory": "1Gi"}}},
    {
        "script": "a.py",
        "template": {"spec": {"hostNetwork": True, "priority": None, "deep": [{"a": [1, 1.5]}]}},
        "roles": {
            "ps": {
                "procs": 2,
                "command": "serve --x",
                "args": [1, True],
                "env": {"A": 1},
                "image": "x",
                "template": {"metadata": {"annotations": {"a": "b"}}},
            }
        },
    },
    {"script": "a.py", "role": {"ps": 1}, "env": {"A": "", "B": 1.5, "C": False}, "resource": {"x": 1}},
    {
        "script": "a.py",
        "node-selector": {"a": True, "b": 1},
        "mount": ["pvc:a:/a"],
        "pull": "always",
        "shm": 1,
    },
    {"script": "a.py", "pip": ["torch"], "ttl": "1d", "keep": 0, "pull-secret": ["a"], "collect": ["x"]},
    {"script": "a.py", "sweep": {"space": {"a": [1, "b", True], "c": "1..2", "d": 0.5}, "fail-fast": True}},
    {"script": "a.py", "framework": "torch", "format": "json", "on": "k8s", "timeout": 90, "secret": ["A"]},
]
BAD: list[Any] = [
    {},
    [],
    None,
    "script: a.py",
    {"workers": 2},
    {"script": "a.py", "module": "b"},
    {"script": "a.py", "command": []},
    {"script": ""},
    {"script": None},
    {"script": ["a.py"]},
    {"script": "a.py", "wrokers": 2},
    {"script": "a.py", "procs": "2"},
    {"script": "a.py", "procs": 2.5},
    {"script": "a.py", "procs": True},
    {"script": "a.py", "gpu-type": "A", "gpu_type": "A"},
    {"script": "a.py", "role": {"ps": 1}, "roles": {"ps": 1}},
    {"script": "a.py", "roles": {"ps": "1"}},
    {"script": "a.py", "roles": {"ps": {"worker": 1}}},
    {"script": "a.py", "roles": {"ps": {"cpus": True}}},
    {"script": "a.py", "roles": {"ps": {"template": "spec"}}},
    {"script": "a.py", "roles": {"ps": {"args": "--x"}}},
    {"script": "a.py", "roles": {"ps": {"script": "b.py"}}},
    {"script": "a.py", "args": "--lr 1"},
    {"script": "a.py", "args": [None]},
    {"script": "a.py", "args": [["a"]]},
    {"script": "a.py", "cpus": True},
    {"script": "a.py", "env": ["A=1"]},
    {"script": "a.py", "env": {"A": None}},
    {"script": "a.py", "resource": {"x": 1.5}},
    {"script": "a.py", "secret": "A"},
    {"script": "a.py", "secret": [1]},
    {"script": "a.py", "framework": "caffe"},
    {"script": "a.py", "reuse_results": "yes"},
    {"script": "a.py", "name": 1},
    {"script": "a.py", "mount": "pvc:a:/a"},
    {"script": "a.py", "node_selector": ["a=b"]},
    {"script": "a.py", "pull": "never"},
    {"script": "a.py", "sweep": {"space": ["a"]}},
    {"script": "a.py", "sweep": {"space": {"a": {"b": 1}}}},
    {"script": "a.py", "sweep": {"seeds": "3"}},
    {"script": "a.py", "sweep": {"fail_fast": True, "fail-fast": True}},
    {"script": "a.py", "pull-secret": ["a"], "pull_secret": ["a"]},
]


@pytest.mark.parametrize(
    ("document", "good"), [*((each, True) for each in GOOD), *((each, False) for each in BAD)]
)
def test_schema_and_reader_on_chosen_documents(document: object, good: bool, tmp_path: Path) -> None:
    assert VALIDATOR.is_valid(document) is good
    assert accepted_by_reader(document, tmp_path) is good


TEXTS = st.text(st.characters(exclude_characters="\0~", exclude_categories=["Cs"]), max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([1.5, 2.0, 1e30]) | TEXTS
VALUES = (
    SCALARS
    | st.lists(SCALARS, max_size=3)
    | st.dictionaries(TEXTS, SCALARS, max_size=2)
    | st.dictionaries(
        TEXTS, st.fixed_dictionaries({}, optional={"workers": SCALARS, "cpus": SCALARS}), max_size=2
    )
)
ANY_KEY = st.sampled_from([*schema()["properties"], "wrokers", "Workers", "gpu_Type"])


@settings(deadline=None)
@given(
    st.dictionaries(ANY_KEY, VALUES, max_size=4), st.sampled_from([{}, {"script": "a.py"}, {"module": "a"}])
)
def test_schema_and_reader_on_any_document(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, object], rest: dict[str, object]
) -> None:
    document = {**document, **rest}
    assert accepted_by_reader(document, tmp_path_factory.getbasetemp()) is VALIDATOR.is_valid(document)
