"""Kubeflow's own examples, run as they are on this machine: manifests through `echelon run -f`, and code that
uses Kubeflow's clients after its import line was changed. The table of the others is `test_table`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.fixtures import give_up
from testbed.patience import FACTOR
from tests.image.bases import Base
from tests.image.registries import Registry
from tests.kubeflow.examples.sources import Example, cells, entrypoint, example, readme_examples
from tests.kubeflow.examples.ways import NOTEBOOKS, WAYS, Way
from tests.mpi import python_with

pytestmark = pytest.mark.slow

Call = Callable[..., subprocess.CompletedProcess[str]]
STANDINS = Path(__file__).parent / "standins"
LONG = 300.0  # seconds, on a quiet machine


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[pytest.mark.soak] if way.long else []) for key, way in WAYS.items()]
)
def test_a_manifest(cli: Call, key: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    found, way = example(key), WAYS[key]
    work = tmp_path / "example"  # beside the manifest are the files that its command names without a folder
    shutil.copytree(found.path.parent, work)
    manifest = work / found.path.name
    if way.asks_registry:
        registry: Registry = request.getfixturevalue("open_registry")
        image = registry.push("kubeflow/example", "1", Base(config={"Entrypoint": entrypoint(found)}))
        manifest.write_text(re.sub(r"image: \S+", f"image: {image}", manifest.read_text()))
    options = ["--on", "local", "--results", str(tmp_path / "results")]
    words = [*options, *maps(found, way, tmp_path / "places"), *way.words]
    done = cli("run", "-f", manifest.name, *words, cwd=work, patience=LONG, env=environment(way, tmp_path))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    missing = [text for text in way.said if text not in done.stdout + done.stderr]
    assert not missing, (missing, done.stdout[-3000:])


def maps(found: Example, way: Way, places: Path) -> Iterator[str]:
    """Fill the folders that the image or a volume would have; the options that name them."""
    for number, (path, sources) in enumerate(way.places.items()):
        folder = places / str(number)
        folder.mkdir(parents=True)
        for source in sources:
            if way.compiled:
                compile_program(found.root / source, folder, way.compiled)
            else:
                shutil.copy(found.root / source, folder)
        yield from ("--map", f"{path}={folder}")


def compile_program(source: Path, folder: Path, implementation: str) -> None:
    compiler = python_with(implementation).parent / "mpicxx"
    if shutil.which("g++") is None:
        give_up("mpicxx calls g++, and it is not installed")
    env = os.environ | {"PATH": f"{compiler.parent}:{os.environ['PATH']}"}
    subprocess.run([str(compiler), "-o", str(folder / source.stem), str(source)], env=env, check=True)


def environment(way: Way, tmp_path: Path) -> dict[str, str]:
    made = os.environ | {"PYTHONPATH": str(STANDINS), "TEST_TMPDIR": str(tmp_path)}
    if way.compiled:
        made["PATH"] += f":{python_with(way.compiled).parent}"
    return made


def run_code(code: str) -> str:
    """Run a notebook's code with echelon's clients, on this machine; fewer CPUs are asked for, since it may
    have two.
    """
    code = re.sub(r"^from kubeflow\.\w+ import", "from echelon.kubeflow import", code, flags=re.MULTILINE)
    code = re.sub(r'("cpu": )"?2"?', r"\g<1>0.5", code)
    Path("notebook.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "notebook.py"],
        env=os.environ | {"ECHELON_ON": "local", "PYTHONPATH": str(STANDINS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG * FACTOR,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_the_first_example_of_the_clients_readme(home: Path) -> None:
    assert home is not None
    code = next(each for each in readme_examples() if "TrainerClient" in each)
    printed = run_code(code)
    assert "WORLD_SIZE: 3" in printed
    assert "loss=" in printed


@pytest.mark.soak
@pytest.mark.parametrize("key", NOTEBOOKS)
def test_a_notebook(home: Path, key: str) -> None:
    """The cell that shows the log is executed, by a person, once there is one."""
    assert home is not None
    found = cells(example(key))
    create = next(number for number, cell in enumerate(found) if ".create_job(" in cell)
    found.insert(create + 1, "training_client.wait_for_job_conditions(pytorchjob_name)")
    printed = run_code("\n".join(found))
    assert "train-pytorch-master-0" in printed or "Train Epoch: 2" in printed
