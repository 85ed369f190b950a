"""From what the user said to a run: what is settled on the way, and that nothing is left when it fails."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from echelon.engines.base import Taken
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, one_node
from echelon.errors import InvalidJob, NoRoomNow, StateTrouble, Unplaceable
from echelon.model.job import NAME_LENGTH, check_name
from echelon.model.plan import Plan
from echelon.model.run import RunRef
from echelon.model.settings import RoleSettings, Settings
from echelon.submit import find_python, gather, prepare, submit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ECHELON_ON", raising=False)
    return tmp_path


def write(name: str, text: str = "print('hi')\n") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def python_in(folder: str) -> str:
    path = Path(folder) / "bin" / "python"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path.absolute())


def test_the_active_environments_python() -> None:
    venv, conda = python_in("venv"), python_in("conda")
    assert find_python({"VIRTUAL_ENV": str(Path("venv").absolute()), "CONDA_PREFIX": "x"}) == venv
    assert find_python({"CONDA_PREFIX": str(Path("conda").absolute()), "PATH": "/nowhere"}) == conda
    on_path = Path("conda/bin/python3").absolute()
    Path(conda).rename(on_path)
    assert find_python({"VIRTUAL_ENV": "/gone", "PATH": str(on_path.parent)}) == str(on_path)
    assert find_python({"PATH": "/nowhere"}) == sys.executable


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ("python3", "python3"),
        ("./venv/bin/python", "{here}/venv/bin/python"),
        (sys.executable, sys.executable),
    ],
)
def test_a_python_that_was_chosen(given: str, settled: str) -> None:
    write("train.py")
    python_in("venv")
    job = prepare(Settings(script="train.py", python=given)).job
    assert job.python == settled.replace("{here}", str(Path.cwd()))


@pytest.mark.parametrize(
    ("given", "hint"), [("venv", ""), ("./venv", "venv/bin/python?"), ("no/py", ""), ("pyhton", "")]
)
def test_a_python_that_is_none(given: str, hint: str) -> None:
    write("train.py")
    python_in("venv")
    with pytest.raises(InvalidJob, match="is not a program") as caught:
        prepare(Settings(script="train.py", python=given))
    assert hint in caught.value.hint
    prepare(Settings(script="train.py", python=given, on="k8s"))  # there it is the image's
    prepare(Settings(script="train.py", python=given, env={"PATH": "/opt/python/bin"}))


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        (Settings(script="deep/My_Train.py"), "my-train-"),
        (Settings(module="pkg.sub.train"), "train-"),
        (Settings(command=["./bin/tool.sh", "x"]), "tool-"),
        (Settings(command="torchrun train.py"), "torchrun-"),
        (Settings(script="deep/123.py"), "run-"),
        (Settings(script=f"deep/{'long' * 20}.py"), "longlong"),
    ],
)
def test_a_name_is_made_from_what_runs(said: Settings, begins: str) -> None:
    for name in ("My_Train", "123", "long" * 20):
        write(f"deep/{name}.py")
    first, second = prepare(said).job.name, prepare(said).job.name
    assert first.startswith(begins)
    assert first != second
    assert len(first) <= NAME_LENGTH
    check_name(first)


@pytest.mark.parametrize(
    ("said", "framework"),
    [
        (Settings(script="with_torch.py"), "torch"),
        (Settings(script="with_keras.py"), "tensorflow"),
        (Settings(script="neither.py"), "plain"),
        (Settings(script="through_a_module.py"), "torch"),
        (Settings(script="neither.py", roles={"ps": 1}), "tensorflow"),
        (Settings(script="with_torch.py", framework="plain"), "plain"),
        (Settings(module="with_torch"), "torch"),
        (Settings(module="pkg"), "torch"),
        (Settings(module="no.such.module"), "plain"),
        (Settings(command=["torchrun", "neither.py"]), "torch"),
        (Settings(command=["python3", "with_torch.py"]), "torch"),
        (Settings(command=["./tool"]), "plain"),
    ],
)
def test_the_framework_by_the_imports(said: Settings, framework: str) -> None:
    write("with_torch.py", "import torch.distributed as dist\n")
    write("with_keras.py", "from tensorflow import keras\n")
    write("neither.py", "import json\ntext = 'import torch'\n")
    write("through_a_module.py", "import with_torch\n")
    write("pkg/__init__.py", "")
    write("pkg/__main__.py", "import torch\n")
    assert prepare(said).job.framework == framework


def test_in_place_or_on_a_copy() -> None:
    write("pyproject.toml", "[project]\nname = 'x'\n")
    write("src/train.py")
    there = prepare(Settings(script="src/train.py"))
    assert (there.job.cwd, there.job.script, there.bundle) == (str(Path.cwd()), "src/train.py", None)
    copy = prepare(Settings(script="src/train.py", snapshot=True))
    assert (copy.job.cwd, copy.job.script) == ("{code}", "src/train.py")
    assert copy.bundle is not None


def test_every_source_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    write("pyproject.toml", "[tool.echelon]\nworkers = 2\nrestarts = 2\nprocs = 2\non = 'local'\n")
    write("train.py")
    job = write("job.yaml", "script: train.py\nworkers: 3\nrestarts: 3\n")
    said = gather(Settings(workers=5), ["workers=4", "restarts=4"], job)
    assert (said.workers, said.restarts, said.procs, said.on) == (5, 4, 2, "local")
    monkeypatch.setenv("ECHELON_ON", "k8s")
    assert gather(Settings(), file=job).on == "k8s"
    assert gather(Settings(on="local"), file=job).on == "local"


def test_what_never_fits_and_what_does_not_fit_now_leave_nothing() -> None:
    write("stay.py")
    engine = MemoryEngine({"stay.py": Act(lasts=True)}, cluster=one_node(gpus=2))
    with pytest.raises(Unplaceable, match="3 GPUs asked for"):
        submit(prepare(Settings(script="stay.py", gpus=3)), engine)
    assert engine.runs() == []
    run = submit(prepare(Settings(script="stay.py", gpus=2, name="a")), engine)
    with pytest.raises(NoRoomNow, match="held by a"):
        submit(prepare(Settings(script="stay.py", gpus=1)), engine, no_wait=True)
    assert [row.name for row in engine.runs()] == ["a"]
    waiting = submit(prepare(Settings(script="stay.py", gpus=1, name="b")), engine)
    assert waiting.status().state == "queued"
    run.stop()


class Late(MemoryEngine):
    """A machine on which somebody is always faster by a moment."""

    def start(self, ref: RunRef, plan: Plan) -> None:
        if ref.name != "other":
            submit(prepare(Settings(script="stay.py", gpus=1, name="other")), self)
            raise Taken("other")
        super().start(ref, plan)


def test_somebody_was_faster_and_we_do_not_wait() -> None:
    write("stay.py")
    engine = Late({"stay.py": Act(lasts=True)}, cluster=one_node(gpus=1))
    with pytest.raises(NoRoomNow, match="held by other"):
        submit(prepare(Settings(script="stay.py", gpus=1, name="a")), engine, no_wait=True)
    assert [row.name for row in engine.runs()] == ["other"]


class Failing(MemoryEngine):
    """A machine that fails at the last step."""

    trouble: BaseException = StateTrouble("the disk is full")

    def start(self, _ref: RunRef, _plan: Plan) -> None:
        raise self.trouble


@pytest.mark.parametrize(
    "trouble", [StateTrouble("the disk is full"), OSError(28, "full"), KeyboardInterrupt()]
)
def test_a_submission_that_fails_half_way_leaves_nothing(trouble: BaseException) -> None:
    write("train.py")
    engine = Failing()
    engine.trouble = trouble
    with pytest.raises(type(trouble)):
        submit(prepare(Settings(script="train.py", name="a")), engine)
    assert engine.runs() == []


@pytest.mark.parametrize("script", ["no.py", "folder", "trian.py"])
def test_a_script_that_cannot_run(script: str) -> None:
    write("train.py")
    Path("folder").mkdir()
    with pytest.raises(InvalidJob) as caught:
        prepare(Settings(script=script))
    assert caught.value.field == "script"
    assert caught.value.hint
    assert ("train.py" in caught.value.hint) == (script == "trian.py")


def test_a_folder_with_a_main_is_a_script() -> None:
    write("app/__main__.py", "import torch\n")
    assert prepare(Settings(script="app")).job.script == "app"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("notes.ipynb", "echelon.run"), ("job.yaml", "-f job.yaml"), ("data.json", "-f data.json")],
)
def test_what_is_not_a_script_is_not_run_as_one(home: Path, name: str, hint: str) -> None:
    Path(name).write_text("{}")
    with pytest.raises(InvalidJob) as caught:
        prepare(Settings(script=name))
    assert hint in caught.value.hint


def test_resuming_needs_a_folder(home: Path) -> None:
    Path("train.py").touch()
    with pytest.raises(InvalidJob, match="resume"):
        prepare(Settings(script="train.py", resume=True))
    assert prepare(Settings(script="train.py", resume=True, name="fm")).job.resume


def test_roles_are_not_for_torch(home: Path) -> None:
    Path("train.py").write_text("import torch")
    with pytest.raises(InvalidJob, match="role"):
        prepare(Settings(script="train.py", roles={"ps": 1}))
    with pytest.raises(InvalidJob, match="launcher"):
        prepare(Settings(script="train.py", roles={"launcher": RoleSettings(command="mpirun")}))


def test_a_role_with_a_command_of_its_own_runs_beside_any_framework(home: Path) -> None:
    Path("train.py").write_text("import torch")
    Path("plain.py").touch()
    roles = {"ps": RoleSettings(command="serve")}
    assert prepare(Settings(script="train.py", roles=roles)).job.framework == "torch"
    assert prepare(Settings(script="plain.py", roles=roles)).job.framework == "plain"
    both = {**roles, "chief": 1}
    assert prepare(Settings(script="plain.py", roles=both)).job.framework == "tensorflow"
