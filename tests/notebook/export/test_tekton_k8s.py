"""A compiled notebook under the real controller of Tekton."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from testbed.paths import LOGS
from tests.examples.conftest import write_idx_folder
from tests.faults.kubernetes.terminal import Terminal, terminal
from tests.notebook.books import write_book

from testbed import controllers

__all__ = ["terminal"]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
]

Call = Callable[..., subprocess.CompletedProcess[str]]
# Worker 1 sends its part to worker 0, so that the sum is right only if both ran and found each other.
ADD_UP = """\
rank, workers = int(os.environ["RANK"]), int(os.environ["ECHELON_WORKERS"])
part = sum(data[rank::workers])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", place[1]))
    connection, _ = server.accept()
    total = part + int(connection.makefile().readline())
    connection.close()
    server.close()
else:
    while True:
        try:
            with socket.create_connection(place) as connection:
                connection.sendall(b"%d\\n" % part)
            break
        except OSError:
            time.sleep(0.2)
del connection
print("worker", rank, "of", workers, "had", part)
"""
EXAMPLE = Path(__file__).parents[3] / "examples" / "notebooks" / "fan_out.ipynb"
TRAINING = [("fashion_mnist_torch.ipynb", "torch-pypi"), ("fashion_mnist_tensorflow.ipynb", "tensorflow")]
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "fashion"},
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "100Mi"}},
    },
}
CELLS = [
    ("imports", "import os, pathlib, socket, time"),
    ("pipeline-parameters", "n = 4\nscale: float = 0.5"),
    ("step:load", "data = list(range(n))\npathlib.Path('made.txt').write_text('by load')"),
    ("step:add_up prev:load distribute workers:2", ADD_UP),
    ("step:tell prev:add_up", "answer = total * scale\nfile = pathlib.Path('made.txt').read_text()"),
    ("pipeline-metrics", "answer\nfile"),
]


@pytest.fixture
def tekton(own_cluster: Target, image: Callable[[str], str]) -> Iterator[None]:
    """Tekton's controller, at work."""
    image("tekton")
    with controllers.using("tekton"):
        yield


def check_by_schema(namespace: Kubectl, pipeline: dict) -> None:
    """The pipeline and each task by the definitions of their own kinds: a PipelineRun's leaves them open."""
    specs = {"Pipeline": [pipeline], "Task": [each["taskSpec"] for each in pipeline["tasks"]]}
    objects = [
        {"apiVersion": "tekton.dev/v1", "kind": kind, "metadata": {"name": f"checked-{number}"}, "spec": spec}
        for kind, each in specs.items()
        for number, spec in enumerate(each)
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    namespace("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_it_succeeds_with_the_value_of_a_local_run(
    tekton: None, cli: Call, namespace: Kubectl, image: Callable[[str], str]
) -> None:
    book = write_book(Path("add.ipynb"), CELLS)
    metrics, results = run_here_and_there(cli, namespace, book, image("python"), here=["n=7"], there=["n=7"])
    assert results == {name: str(value) for name, value in metrics.items()}
    assert metrics["answer"] == sum(range(7)) * 0.5
    log = namespace("logs", "-l", "tekton.dev/pipelineTask=add-up", "-c", "step-step")
    assert "[1] worker 1 of 2 had 9" in log


def test_the_example_that_fans_out_does(
    tekton: None, cli: Call, namespace: Kubectl, image: Callable[[str], str]
) -> None:
    given = ["points=4000"]
    metrics, results = run_here_and_there(cli, namespace, EXAMPLE, image("python"), here=given, there=given)
    assert results == {name: str(value) for name, value in metrics.items()}
    assert abs(metrics["pi"] - 3.14) < 0.2


@pytest.mark.parametrize(("example", "framework"), TRAINING)
def test_the_examples_that_train_on_two_workers_do(
    tekton: None, cli: Call, terminal: Terminal, image: Callable[[str], str], example: str, framework: str
) -> None:
    """Files beside a notebook do not travel: the data is on a volume that the notebook's metadata names."""
    data = write_idx_folder(Path("data"), train=200, test=100)
    terminal.kubectl.create(CLAIM)
    copied = terminal.call("cp", f"{data.absolute()}/.", "pvc:fashion/idx", "--image", terminal.image)
    assert copied.returncode == 0, copied.stderr
    document = json.loads(EXAMPLE.with_name(example).read_text())
    about = document["metadata"].setdefault("kubeflow_notebook", {})
    about["volumes"] = [{"name": "fashion", "type": "pvc", "mount_point": "/fashion"}]
    Path(example).write_text(json.dumps(document))
    metrics, results = run_here_and_there(
        cli,
        terminal.kubectl,
        Path(example),
        image(framework),
        "--storage-class",
        "shared",
        "--shared",
        here=[f"data_path={data.absolute()}"],
        there=["data_path=/fashion/idx"],
    )
    assert set(results) == set(metrics)
    if framework == "torch-pypi":  # it is seeded, and of the same version
        assert {name: float(value) for name, value in results.items()} == pytest.approx(metrics, abs=0.05)
    else:
        assert float(results["last_loss"]) < float(results["first_loss"])


def run_here_and_there(
    cli: Call,
    namespace: Kubectl,
    book: Path,
    image: str,
    *words: str,
    here: Sequence[str],
    there: Sequence[str],
) -> tuple[dict, dict[str, str]]:
    """Run a notebook on this machine and under Tekton, each with its parameters; returns the metrics of the
    first and the results of the second.
    """

    def given(parameters: Sequence[str]) -> list[str]:
        return [word for each in parameters for word in ("--param", each)]

    local = cli("notebook", "run", str(book), *given(here), "-o", "json", patience=300)
    assert local.returncode == 0, local.stderr
    steps = json.loads(local.stdout)["steps"].values()
    metrics = {name: value for step in steps for name, value in step["metrics"].items()}
    placed = ("--image", image, "--namespace", namespace.namespace, "--into", "tekton", *words)
    done = cli("notebook", "compile", "--to", "tekton", str(book), *given(there), *placed)
    assert done.returncode == 0, done.stderr
    needed, run = (next(Path("tekton").absolute().glob(f"*-{kind}.yaml")) for kind in ("needed", "run"))
    check_by_schema(namespace, yaml.safe_load(run.read_text())["spec"]["pipelineSpec"])
    namespace("apply", "-f", str(needed))
    made = namespace("create", "-f", str(run), "-o", "name").strip()

    def finished() -> dict:
        conditions = namespace.get(*made.split("/", 1)).get("status", {}).get("conditions", [{}])
        return conditions[0] if conditions[0].get("status", "Unknown") != "Unknown" else {}

    try:
        namespace.wait_for(finished, "the PipelineRun", patience=300)
        assert finished()["reason"] == "Succeeded", finished()
        results = namespace.get(*made.split("/", 1))["status"]["results"]
    except BaseException:
        print(namespace("get", "pods,jobs", "-o", "wide"), namespace("get", "events"), sep="\n")
        print((LOGS / "controller-tekton.log").read_text()[-3000:])
        raise
    return metrics, {each["name"]: each["value"] for each in results}
