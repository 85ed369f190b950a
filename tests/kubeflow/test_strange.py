"""Whatever stands in any place of a manifest, it is read or refused in words: never a traceback."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kubeflow.kinds.test_mpijob import BENCHMARKS
from tests.kubeflow.kinds.test_pytorchjob import ELASTIC, MNIST
from tests.kubeflow.kinds.test_tfjob import DIST_MNIST
from tests.kubeflow.kinds.test_trainjob import JOB, RUNTIME, joined

from echelon.errors import InvalidJob
from echelon.kubeflow import on_this_machine, read_manifest
from echelon.model.meaning import to_job

pytestmark = pytest.mark.slow

STRANGE: tuple[Any, ...] = (None, -1, True, "x", "$(A", [], [1], [[]], {}, {"name": 1}, [{"name": "x"}])


DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # thousands of documents: the fast one, if it is there


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*place, key))


def changed(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(document)
    inner = made
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return made


@pytest.mark.parametrize(
    "text",
    [MNIST, ELASTIC, DIST_MNIST, BENCHMARKS, joined(RUNTIME, JOB)],
    ids=["mnist", "elastic", "tf", "mpi", "train"],
)
def test_anything_anywhere(tmp_path: Path, text: str) -> None:
    documents = list(yaml.safe_load_all(textwrap.dedent(text)))
    file = tmp_path / "job.yaml"
    for number, place in enumerate(places(documents)):
        for value in (STRANGE[(number + shift) % len(STRANGE)] for shift in (0, 4, 7)):
            file.write_text(yaml.dump_all(changed(documents, place, value), Dumper=DUMPER))
            assert "\n" not in outcome(file), (place, value)


def outcome(file: Path) -> str:
    """The refusal, or nothing."""
    try:
        manifest = read_manifest(file)
        if manifest is not None:
            to_job(manifest.settings, name="strange")
            on_this_machine(manifest, manifest.settings, {}, file.parent, lambda _path: True)
    except InvalidJob as error:
        return error.message
    return ""
