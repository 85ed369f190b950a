"""The calls of echelon's clients beside those of Kubeflow's own, as PyPI has them: every public parameter is
taken in its place, or is a line of the table in the documents.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path

import pytest

from echelon import kubeflow
from echelon.kubeflow import TrainerClient, TrainingClient
from echelon.kubeflow.sdk import trainer_types
from testbed import sdk

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "coming-from-kubeflow.md"
FIRST = ("kubeflow-training", "kubeflow/training/api/training_client.py", "TrainingClient")
SECOND = ("kubeflow", "kubeflow/trainer/api/trainer_client.py", "TrainerClient")
TYPES = {
    "CustomTrainer": "kubeflow/trainer/types/types.py",
    "TrainJobTemplate": "kubeflow/trainer/types/types.py",
    **dict.fromkeys(
        (
            "CustomTrainerContainer",
            "BuiltinTrainer",
            "TorchTuneConfig",
            "TorchTuneInstructDataset",
            "LoraConfig",
            "Initializer",
            "DataCacheInitializer",
            "HuggingFaceDatasetInitializer",
            "HuggingFaceModelInitializer",
            "S3DatasetInitializer",
            "S3ModelInitializer",
        ),
        "kubeflow/trainer/types/types.py",
    ),
    "ContainerBackendConfig": "kubeflow/trainer/backends/container/types.py",
    "TrainingRuntimeSource": "kubeflow/trainer/backends/container/types.py",
    "Runtime": "kubeflow/trainer/types/types.py",
    "RuntimeTrainer": "kubeflow/trainer/types/types.py",
    "Step": "kubeflow/trainer/types/types.py",
    "TrainJob": "kubeflow/trainer/types/types.py",
    "Event": "kubeflow/trainer/types/types.py",
    "KubernetesBackendConfig": "kubeflow/common/types.py",
    "LocalProcessBackendConfig": "kubeflow/trainer/backends/localprocess/types.py",
}
Parameters = dict[str, object]  # by name, in their order, with the default or REQUIRED
REQUIRED = "required"

# What is not the same: calls that are refused. The documents have each.
REFUSED = {"TrainingClient.train", "TrainerClient.get_runtime_packages"}
# Taken, with another default, to no effect, or to be refused: nothing of a signature shows it.
BESIDE = {
    "TrainingClient(namespace)",
    "CustomTrainer(pip_index_urls)",
    "timeout",
    "delete_options",
    "cleanup_venv",
    "client_configuration",
    "initializer",
    "options",
    "CustomTrainerContainer",
    "BuiltinTrainer",
    "ContainerBackendConfig",
    "update_trainjob_status",
}


def class_in(package: str, file: str, name: str) -> ast.ClassDef:
    tree = ast.parse((sdk.source(package) / file).read_text())
    return next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)


def default(node: ast.expr | None) -> object:
    if node is None:
        return REQUIRED
    try:
        return as_value(ast.literal_eval(node))
    except ValueError:
        return ...  # an expression, which is compared by nobody


def calls_of(package: str, file: str, name: str) -> dict[str, Parameters]:
    """The public calls of a class of Kubeflow's."""
    found = {}
    for each in class_in(package, file, name).body:
        if isinstance(each, ast.FunctionDef) and (each.name == "__init__" or not each.name.startswith("_")):
            words = each.args.args[1:]
            missing = [None] * (len(words) - len(each.args.defaults))
            values = [default(node) for node in (*missing, *each.args.defaults)]
            found[each.name] = dict(zip((word.arg for word in words), values, strict=True))
    return found


def fields_of(package: str, file: str, name: str) -> list[str]:
    """The public fields of one of Kubeflow's types."""
    body = class_in(package, file, name).body
    named = [each.target for each in body if isinstance(each, ast.AnnAssign)]
    return [each.id for each in named if isinstance(each, ast.Name) and not each.id.startswith("_")]


def own_parameters(call: object) -> Parameters:
    assert callable(call)
    found = list(inspect.signature(call).parameters.values())[1:]
    return {each.name: REQUIRED if each.default is each.empty else each.default for each in found}


def differences(ours: type, theirs: dict[str, Parameters]) -> set[str]:
    """The calls that are missing, and the parameters that differ in name, place or default."""
    found = set()
    for call, wanted in theirs.items():
        about = ours.__name__ if call == "__init__" else f"{ours.__name__}.{call}"
        method = getattr(ours, call, None)
        if method is None:
            found.add(about)
        if method is None or about in REFUSED:
            continue
        here = own_parameters(method)
        places = list(here)
        for place, (name, value) in enumerate(wanted.items()):
            at_its_place = name in here and places.index(name) == place
            if not at_its_place or value not in (..., as_value(here[name])):
                found.add(f"{about}({name})")
    return found


def as_value(given: object) -> object:
    return frozenset(given) if isinstance(given, set | frozenset) else given


def test_every_call_of_the_first_client_is_there() -> None:
    theirs = calls_of(*FIRST)
    assert len(theirs) >= 15
    assert differences(TrainingClient, theirs) == set()


def test_every_call_of_the_second_client_is_there() -> None:
    theirs = calls_of(*SECOND)
    assert len(theirs) >= 10
    assert differences(TrainerClient, theirs) == set()


@pytest.mark.parametrize("name", TYPES)
def test_every_field_of_its_types_is_there(name: str) -> None:
    theirs = fields_of(SECOND[0], TYPES[name], name)
    ours = getattr(kubeflow, name, None) or getattr(trainer_types, name)
    here = [each.name for each in dataclasses.fields(ours)]
    assert theirs
    assert [field for field in theirs if field not in here] == []


def test_every_name_that_notebooks_import_beside_the_client_is_there() -> None:
    tree = ast.parse((sdk.source(SECOND[0]) / "kubeflow/trainer/__init__.py").read_text())
    (listed,) = (each.value for each in tree.body if isinstance(each, ast.Assign))
    names = ast.literal_eval(listed)
    assert len(names) > 20
    assert [name for name in names if not hasattr(kubeflow, name)] == []
    assert [name for name in names if name not in kubeflow.__all__] == []


@pytest.mark.parametrize("name", ["Loss", "DataType", "DataFormat", "TrainerType", "RuntimeKind"])
def test_every_word_is_there(name: str) -> None:
    body = class_in(SECOND[0], "kubeflow/trainer/types/types.py", name).body
    words = {str(each.targets[0].id) for each in body if isinstance(each, ast.Assign)}  # type: ignore[attr-defined]
    assert words == set(getattr(kubeflow, name).__members__)


@pytest.mark.parametrize("name", sorted(REFUSED | BESIDE))
def test_the_documents_have_every_difference(name: str) -> None:
    table = PAGE.read_text().partition("| call or parameter | here |")[2].partition("\n\n")[0]
    assert f"`{name}`" in table
