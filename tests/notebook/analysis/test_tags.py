"""Kale's tags and ours, cells gathered to steps, and parameters."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from tests.notebook.books import read_book, write_book

from echelon.engines import durable
from echelon.errors import StateTrouble
from echelon.model.settings import Settings
from echelon.notebook.analysis.cells import InvalidNotebook, read_notebook, write_tags
from echelon.notebook.analysis.pipeline import read_pipeline
from echelon.notebook.analysis.tags import read_tag_list


def test_every_tag_of_kale_is_read() -> None:
    tags = read_tag_list(
        [
            "block:train",
            "prev:load",
            "limit:nvidia.com/gpu:1",
            "limit:memory:4Gi",
            "limit:example.com/fpga:2",
            "annotation:see:http://x:80/y",
            "label:team:vision",
            "image:registry:5000/me/img:2",
            "cache:disabled",
            "report:enabled",
            "secret:keys:token:HF_TOKEN",
            "distribute:tf.distribute.experimental.MultiWorkerMirroredStrategy",
            "numWorkers:3",
            "gpus:2",
            "slideshow",
        ],
        "cell 1",
    )
    assert (tags.steps, tags.after, tags.unknown) == (("train",), ("load",), ("slideshow",))
    options = tags.options
    assert options.settings == Settings(
        memory="4Gi",
        resource={"example.com/fpga": 2},
        annotation={"see": "http://x:80/y"},
        label={"team": "vision"},
        image="registry:5000/me/img:2",
        workers=3,
        gpus=2,
    ), "the later of two wins"
    assert options.secrets == (("keys", "token", "HF_TOKEN"),)
    assert (options.cache, options.distribute) == (False, "mirrored")


@pytest.mark.parametrize(
    ("tag", "says"),
    [
        ("step:My Step", "'My Step' cannot name a step"),
        ("limit:cpu", "has no value"),
        ("secret:a:b", "names no variable"),
        ("distribute:magic", "is not known"),
        ("workers:many", "needs a number"),
        ("cache:maybe", "is not known"),
    ],
)
def test_a_tag_whose_value_is_wrong_is_refused_with_its_cell(tag: str, says: str) -> None:
    with pytest.raises(InvalidNotebook, match=says) as refused:
        read_tag_list([tag], "cell 7")
    assert refused.value.message.startswith("cell 7")
    assert refused.value.hint


@pytest.mark.parametrize(
    ("tags", "framework", "workers", "servers"),
    [
        ("distribute workers:2", "torch", 2, 0),
        ("distribute:torch", "torch", 2, 0),
        ("distribute:MultiWorkerMirroredStrategy numWorkers:4", "tensorflow", 4, 0),
        ("workers:3 parameterServers:2", "tensorflow", 3, 2),
        ("distribute:ParameterServerStrategy numWorkers:2 numParameterServers:1", "tensorflow", 2, 1),
    ],
)
def test_distribution(tmp_path: Path, tags: str, framework: str, workers: int, servers: int) -> None:
    (step,) = read_book(tmp_path, [(f"step:train {tags}", "import torch\nx = 1")]).steps
    assert (step.size.framework, step.size.workers, step.size.parameter_servers) == (
        framework,
        workers,
        servers,
    )


def test_cells_are_gathered(tmp_path: Path) -> None:
    pipeline = read_book(
        tmp_path,
        [
            ("imports", "import math"),
            ("", "import json"),  # joins the imports
            ("step:load", "x = 1"),
            ("skip", "this is ! not Python"),
            ("", "y = x + 1"),  # joins load: the skipped cell does not count
            ("step:use prev:load limit:cpu:2", "z = math.sqrt(y)"),
            ("step:load", "w = 2"),  # a repeated name is added to the step
            ("", ""),
            ("pipeline-metrics", "print(z)\nw"),
        ],
    )
    assert [code.cell for code in pipeline.prelude] == [1, 2]
    assert {step.name: [code.cell for code in step.cells] for step in pipeline.steps} == {
        "load": [3, 5, 7],
        "use": [6],
    }
    assert pipeline.steps[1].options.settings == Settings(cpus="2")
    assert pipeline.metrics == ("z", "w")


def test_untagged_cells_before_the_first_step(tmp_path: Path) -> None:
    """One that only defines runs in every step; one that works is a step of its own, before all others."""
    pipeline = read_book(
        tmp_path,
        [
            ("", "import math\nN = 3"),
            ("", "data = [math.pi] * N"),
            ("step:use", "print(data, N)"),
            ("step:b", "1"),
        ],
    )
    assert [code.cell for code in pipeline.prelude] == [1]
    assert [(step.name, step.after) for step in pipeline.steps] == [
        ("start", ()),
        ("use", ("start",)),
        ("b", ("start",)),
    ]
    assert pipeline.steps[1].flow.inputs == {"data": "start"}


def test_metadata_of_kale(tmp_path: Path) -> None:
    metadata = {
        "kubeflow_notebook": {
            "pipeline_name": "Fashion MNIST",
            "docker_image": "me/img:1",
            "experiment_name": "",
            "volumes": [
                {"name": "data", "type": "pvc", "mount_point": "/data", "size": 5, "size_type": "Gi"}
            ],
            "steps_defaults": ["limit:memory:2Gi", "label:team:vision", "gpus:1"],
        }
    }
    pipeline = read_book(
        tmp_path, [("step:a", "1"), ("step:b limit:memory:4Gi label:n:1", "1")], metadata=metadata
    )
    assert pipeline.name == "fashion-mnist"
    about = pipeline.notebook.about
    assert (about.image, about.volumes[0].mount_point, about.volumes[0].size) == ("me/img:1", "/data", "5Gi")
    assert [step.options.settings for step in pipeline.steps] == [
        Settings(memory="2Gi", label={"team": "vision"}, gpus=1),
        Settings(memory="4Gi", label={"team": "vision", "n": "1"}, gpus=1),
    ]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([("step:a prev:lod", "1"), ("step:load", "1")], r"cell 1: prev:lod.*did you mean prev:load"),
        ([("step:a prev:a", "1")], "cannot come after itself"),
        ([("step:a prev:b", "1"), ("step:b prev:a", "1")], "wait for each other: a after b after a"),
        ([("imports step:a", "1")], "tagged both"),
        ([("imports", "import os")], "has no step"),
        ([("step:a", "x = = 1")], "cell 1, line 1: this is not Python"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, cells: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(InvalidNotebook) as refused:
        read_book(tmp_path, cells)
    import re

    assert re.search(says, str(refused.value))


def test_parameters_keep_their_types_and_lines(tmp_path: Path) -> None:
    cells = [
        (
            "pipeline-parameters",
            "lr = 0.1\nn: int = -1\nname = 'a'\nnone = None\nflag = True\nsizes = [1, 2]\nmust: str",
        ),
        ("pipeline-parameters", "rate: float = 1"),
        ("step:use", "print(lr, n, name, none, flag, sizes, must, rate)"),
    ]
    given = {"lr": "1", "n": "-5", "name": "5", "none": "3", "flag": "no", "sizes": "[3]", "must": "x"}
    given["rate"] = "0.5"
    pipeline = read_book(tmp_path, cells, given)
    assert pipeline.values == {
        "lr": 1.0, "n": -5, "name": "5", "none": 3, "flag": False, "sizes": [3], "must": "x", "rate": 0.5,
    }  # fmt: skip
    assert pipeline.prelude[0].text.split("\n")[1] == "n: int = -5"
    for wrong, says in [
        ({"lr": "fast"}, "is not a float"),
        ({"n": "1.5"}, "is not an int"),
        ({"sizes": "3"}, "is not a list"),
        ({"lrr": "1"}, "did you mean lr"),
        ({}, "'must' has no value"),
    ]:
        with pytest.raises(InvalidNotebook) as refused:
            read_pipeline(tmp_path / "book.ipynb", {"must": "x"} | wrong if wrong else {})
        assert says in str(refused.value)
    with pytest.raises(InvalidNotebook, match="is not a constant"):
        read_book(tmp_path, [("pipeline-parameters", "a = f()"), ("step:a", "1")])


@pytest.mark.parametrize(
    ("own", "texts", "value"),
    [
        ("flag = False", ("yes", "Yes", "TRUE", "true", "1", " true "), True),
        ("flag = True", ("no", "NO", "false", "False", "0"), False),
        ("flag: bool", ("yes",), True),
        ("n = 1", ("1000", "1_000", " 1000", "+1000", "0x3e8"), 1000),
        ("lr = 0.1", ("1e-3", "0.001", ".001"), 0.001),
        ("lr = 0.1", ("1", "1."), 1.0),
        ("s = 'a'", ("None",), "None"),
        ("s = 'a'", ("x y", "'x y'", '"x y"'), "x y"),
        ("s = 'a'", ("", "''"), ""),
        ("n: int | None = 3", ("None",), None),
        ("n: Optional[int] = 3", ("None", " None"), None),
        ("n = None", ("None",), None),
        ("n = None", ("fast",), "fast"),
        ("sizes = []", ("[1, 'a']",), [1, "a"]),
        ("sizes = ()", ("(1, 2)", "1, 2"), (1, 2)),
        ("b = b''", ("b'a'",), b"a"),
    ],
)
def test_a_parameters_text_as_a_value(
    own: str, texts: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    name = own.partition(" ")[0].rstrip(":")
    imports = ("imports", "from typing import Optional")
    cells = [imports, ("pipeline-parameters", own), ("step:use", f"print({name})")]
    for text in texts:
        found = read_book(tmp_path, cells, {name: text}).values[name]
        assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("own", "texts", "accepted"),
    [
        ("flag = True", ("on", "2", "", "None", "[]"), "true, false, yes, no, 1 or 0"),
        ("n = 1", ("1.0", "1e3", "007", "true", "None", "", "__import__('os')"), "such as 3"),
        ("lr = 0.1", ("nan", "inf", "True", "0,1", "1e-3x"), "0.5 or 1e-3"),
        ("sizes = []", ("1, 2", "(1, 2)", "[1", "1"), "[1, 2]"),
        ("b = b''", ("a",), "b'a'"),
    ],
)
def test_a_parameters_text_that_is_none_is_told_with_what_is_accepted(
    own: str, texts: tuple[str, ...], accepted: str, tmp_path: Path
) -> None:
    name = own.partition(" ")[0]
    cells = [("pipeline-parameters", own), ("step:use", f"print({name})")]
    for text in texts:
        with pytest.raises(InvalidNotebook) as refused:
            read_book(tmp_path, cells, {name: text})
        assert accepted in refused.value.hint, text


def test_a_tag_that_cannot_be_written_names_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the file beside it that would have replaced it."""
    path = write_book(tmp_path / "b.ipynb", [("step:a", "x = 1")])

    def refuse(_path: Path, _content: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", f"{path}.1.tmp")

    monkeypatch.setattr(durable, "replace_file", refuse)
    with pytest.raises(StateTrouble, match=r"b\.ipynb cannot be written: Permission denied") as caught:
        write_tags(path, 1, lambda _cells: {1: ("step:b",)})
    assert "copy of the notebook" in caught.value.hint


def test_a_tag_is_written_and_nothing_else_changes(tmp_path: Path) -> None:
    path = write_book(
        tmp_path / "b.ipynb", [("step:a", "x = 1"), ("", "y = 'ä'")], {"kernelspec": {"name": "p"}}
    )
    path.chmod(0o640)
    before = json.loads(path.read_text())
    write_tags(path, 2, lambda _cells: {2: ("step:b", "prev:a")})
    assert write_tags(path, 2, lambda cells: {2: cells[2][:1]}) == {2: ("step:b",)}
    after = json.loads(path.read_text())
    assert after["cells"][1]["metadata"].pop("tags") == ["step:b"]
    assert after == before
    assert path.stat().st_mode & 0o777 == 0o640
    assert read_notebook(path).cells[1].tags == ("step:b",)
    with pytest.raises(InvalidNotebook, match="cell 9"):
        write_tags(path, 9, lambda _cells: {9: ("step:b",)})


def test_a_link_to_a_notebook_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    path, link = write_book(tmp_path / "shared" / "b.ipynb", [("step:a", "x = 1")]), tmp_path / "link.ipynb"
    link.symlink_to("shared/b.ipynb")
    write_tags(link, 1, lambda _cells: {1: ("step:b",)})
    assert link.is_symlink()
    assert read_notebook(path).cells[0].tags == ("step:b",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', '{"cells": [3]}', "\0"])
def test_a_file_that_is_no_notebook_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.ipynb"
    path.write_text(text)
    with pytest.raises(InvalidNotebook):
        read_notebook(path)
