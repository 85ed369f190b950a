"""What becomes of an example of Kubeflow's, and why: one line of the documents' table for each outcome."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import yaml
from tests.kubeflow.examples.sources import (
    CLIENT,
    Example,
    cells,
    entrypoint,
    files,
    folder_of,
    readme_examples,
    release,
)
from tests.kubeflow.examples.ways import NOTEBOOKS, WAYS

from echelon.errors import InvalidJob
from echelon.kubeflow import Manifest, Outside, read_manifest
from echelon.model.job import Job, asks_for_gpus
from echelon.model.meaning import to_job
from testbed import sdk

Row = tuple[str, str, str]
RUNS = "runs"
GPU = "needs a GPU"
NETWORK = "needs packages and data from the network"
IMAGE = "its program is in its image alone"
CONTAINERS = "its client starts containers on this machine, which echelon does not"
_GPU = re.compile(r'^[^#]*"(?:nvidia\.com/)?gpu"\s*:', re.MULTILINE)


def all_rows() -> Counter[Row]:
    """Every example there is."""
    manifests = [manifest_row(each) for each in files("yaml")]
    notebooks = [notebook_row(each) for each in files("ipynb")]
    return Counter([*manifests, *runtime_rows(), *notebooks, *readme_rows()])


def read(example: Example) -> Manifest:
    """The job of an example; what its image starts is known from its Dockerfile."""

    def find_start(_image: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        words = entrypoint(example)
        return None if words is None else (words, ())

    manifest = read_manifest(example.path, Outside(find_start=find_start))
    assert manifest is not None, example.key
    return manifest


def manifest_row(example: Example) -> Row:
    """Whether a manifest is read, and what keeps it from running here."""
    source = release(example.module)
    kinds = [each["kind"] for each in yaml.safe_load_all(example.path.read_text())]
    try:
        manifest = read(example)
        job = to_job(manifest.settings, name="example")
    except InvalidJob as error:
        jobs = [kind for kind in kinds if kind.endswith("Job")]
        if re.search(r"containers\[\d+\]$", error.field):
            return source, jobs[0], "not read: its command is in its image alone"
        if error.field.rpartition(": ")[2] != "kind":
            raise
        if not jobs:
            return source, "no job", "volumes or services alone"
        return source, jobs[0], "not read: no kind that echelon runs"
    return source, manifest.kind, _manifest_outcome(example, manifest, job)


def _manifest_outcome(example: Example, manifest: Manifest, job: Job) -> str:
    if example.key in WAYS:
        return RUNS
    if asks_for_gpus(job):
        return f"read; {GPU}"
    if manifest.document["spec"].get("mpiImplementation") == "Intel":
        return "read; needs Intel's MPI"
    script = next(Path(word).name for word in (*job.command, *job.args) if word.endswith(".py"))
    beside = example.path.parent / script
    found = beside if beside.exists() else next(iter(sorted(example.root.rglob(script))), None)
    if found is None:
        return f"read; {IMAGE}"
    text = "".join(path.read_text() for path in found.parent.glob("*.py"))
    if "lightgbm" in text:
        return "read; LightGBM is not wired"
    if "xgb.rabit" in text:
        return "read; calls `xgboost.rabit`, which XGBoost has no longer"
    if "urlretrieve" in text:
        return f"read; {NETWORK}"
    assert missing_packages(found.read_text()), f"nothing keeps {example.key} from running: add it to WAYS"
    return f"read; {NETWORK}"


def runtime_rows() -> Iterator[Row]:
    """Trainer's own runtimes, each with a TrainJob that refers to it."""
    root = folder_of("trainer", "manifests/base/runtimes")
    for path in sorted(root.rglob("*.yaml")):
        runtime = yaml.safe_load(path.read_text())
        if runtime["kind"] == "ClusterTrainingRuntime":
            yield release("trainer"), "ClusterTrainingRuntime", _runtime_outcome(runtime)


def _runtime_outcome(runtime: dict[str, object]) -> str:
    from echelon.kubeflow.documents import read_document

    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "example"},
        "spec": {
            "runtimeRef": {"name": runtime["metadata"]["name"]},  # type: ignore[index]
            "trainer": {"command": ["python", "train.py"], "numNodes": 2},
        },
    }
    try:
        manifest = read_document(job, Outside(find_runtime=lambda _kind, _name: runtime))
    except InvalidJob as error:
        return f"refused, for its `{error.field.rpartition(': ')[2]}`"
    to_job(manifest.settings, name="example")
    return "read, with a TrainJob"


def notebook_row(example: Example) -> Row:
    """What keeps a notebook from running here with another import line."""
    return release(example.module), "notebook", _notebook_outcome(example)


def _notebook_outcome(example: Example) -> str:
    if example.key in NOTEBOOKS:
        return RUNS
    code = "\n".join(cells(example))
    if _GPU.search(code):
        return GPU
    if "ContainerBackendConfig(" in code:
        return CONTAINERS
    if re.search(r"\bimage=", code):
        return IMAGE
    assert missing_packages(code), f"nothing keeps {example.key} from running: add it to NOTEBOOKS"
    return NETWORK


def readme_rows() -> Iterator[Row]:
    """The examples in the description of Kubeflow's client."""
    for code in readme_examples():
        outcome = RUNS if "TrainerClient" in code else "another service than training"
        if "ContainerBackendConfig(" in code:
            outcome = CONTAINERS
        yield f"{CLIENT} {sdk.VERSIONS[CLIENT]}", "example of its README", outcome


def missing_packages(code: str) -> set[str]:
    """What code imports and this Python does not have, but for Kubeflow's own."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    tops = {name.partition(".")[0] for name in names} - {"kubeflow", "kubernetes"}
    return {name for name in tops if find_spec(name) is None}
