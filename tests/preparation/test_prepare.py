"""What is settled before a run is submitted: its Python, its name, its framework, its folder, its code."""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from echelon.errors import InvalidJob
from echelon.model.engine.traits import Traits
from echelon.model.job import NAME_LENGTH, check_name
from echelon.model.settings import RoleSettings, Settings
from echelon.model.surroundings import Surroundings
from echelon.preparation.prepare import Prepared, find_python, prepare, prepare_cell, prepare_function

HERE = Traits(place="this machine")
THERE = Traits(place="a cluster", remote=True, code_limit=2**20)


def settle(settings: Settings, traits: Traits = HERE, folder: Path | None = None) -> Prepared:
    return prepare(settings, Surroundings(folder=folder or Path.cwd(), environment=dict(os.environ)), traits)


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
    job = settle(Settings(script="train.py", python=given)).job
    assert job.python == settled.replace("{here}", str(Path.cwd()))


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("venv", ""),
        ("./venv", "venv/bin/python?"),
        ("./venv/bin", "venv/bin/python?"),
        ("no/py", ""),
        ("pyhton", ""),
    ],
)
def test_a_python_that_is_none(given: str, hint: str) -> None:
    write("train.py")
    python_in("venv")
    with pytest.raises(InvalidJob, match="is not a program") as caught:
        settle(Settings(script="train.py", python=given))
    assert hint in caught.value.hint
    settle(Settings(script="train.py", python=given), THERE)  # there it is the image's
    settle(Settings(script="train.py", python=given, env={"PATH": "/opt/python/bin"}))


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        (Settings(script="deep/My_Train.py"), "my-train-"),
        (Settings(module="pkg.sub.train"), "train-"),
        (Settings(command=["./bin/tool.sh", "x"]), "tool-"),
        (Settings(command="torchrun train.py"), "train-"),
        (Settings(script="deep/123.py"), "run-"),
        (Settings(script=f"deep/{'long' * 20}.py"), "longlong"),
    ],
)
def test_a_name_is_made_from_what_runs(given: Settings, begins: str) -> None:
    for name in ("My_Train", "123", "long" * 20):
        write(f"deep/{name}.py")
    first, second = settle(given).job.name, settle(given).job.name
    assert first.startswith(begins)
    assert first != second
    assert len(first) <= NAME_LENGTH
    check_name(first)


@pytest.mark.parametrize(
    ("given", "framework"),
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
        (Settings(module="torch.distributed.run", args=["neither.py"]), "torch"),
        (Settings(script="launch.sh"), "torchrun"),
        (Settings(command=["./launch.sh"]), "torchrun"),
        (Settings(command=["bash", "-c", "cd src && torchrun train.py"]), "torchrun"),
        (Settings(command=["python3", "with_torch.py"]), "torch"),
        (Settings(command=["./tool"]), "plain"),
    ],
)
def test_the_framework_by_the_imports(given: Settings, framework: str) -> None:
    write("with_torch.py", "import torch.distributed as dist\n")
    write("with_keras.py", "from tensorflow import keras\n")
    write("neither.py", "import json\ntext = 'import torch'\n")
    write("launch.sh", "export A=1\nOMP_NUM_THREADS=2 torchrun --nproc_per_node=2 \\\n  neither.py\n")
    write("through_a_module.py", "import with_torch\n")
    write("pkg/__init__.py", "")
    write("pkg/__main__.py", "import torch\n")
    assert settle(given).job.framework == framework


@pytest.mark.parametrize("shares", ["any", "largest-first"])
@pytest.mark.parametrize(
    "given",
    [
        Settings(command=["torchrun", "train.py"]),
        Settings(command=["python3", "-m", "torch.distributed.run", "train.py"]),
        Settings(module="torch.distributed.run", args=["train.py"]),
        Settings(command=["bash", "-c", "exec torchrun train.py"]),
        Settings(command=["./launch"], framework="torchrun"),
    ],
)
def test_torchrun_takes_no_shares_that_differ(
    given: Settings, shares: Literal["any", "largest-first"]
) -> None:
    with pytest.raises(InvalidJob, match="torchrun wants the same on all") as caught:
        settle(replace(given, total_gpus="6", shares=shares))
    assert caught.value.field == "shares"
    settle(replace(given, total_gpus="6"))


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (["--node_rank", "0"], "--node_rank 0"),
        (["--nnodes=2", "--node-rank=0"], "--node-rank=0"),
        (["--nnodes", "1", "--nproc_per_node=2"], "--nnodes 1"),
        (["--standalone", "--nproc-per-node=2"], "--standalone"),
        (["--nnodes=2", "--nproc_per_node=2", "--master_port=29500"], None),
        (["--nnodes=$(NODES)", "--node_rank=$(RANK)"], None),
        (["--nnodes=1:2"], None),
        (["train.py", "--standalone"], None),
    ],
)
def test_what_torchrun_is_told_holds_for_all_workers(flags: list[str], wrong: str | None) -> None:
    for given in (
        Settings(command=["torchrun", *flags, "train.py"]),
        Settings(module="torch.distributed.run", args=[*flags, "train.py"]),
    ):
        settle(replace(given, workers=1))
        if wrong is None:
            settle(replace(given, workers=2))
            continue
        with pytest.raises(InvalidJob, match="is wrong on 2 workers") as caught:
            settle(replace(given, workers=2))
        assert caught.value.value == wrong


def test_in_place_or_on_a_copy() -> None:
    write("pyproject.toml", "[project]\nname = 'x'\n")
    write("src/train.py")
    there = settle(Settings(script="src/train.py"))
    assert (there.job.cwd, there.job.script, there.bundle) == (str(Path.cwd()), "src/train.py", None)
    copy = settle(Settings(script="src/train.py", snapshot=True))
    assert (copy.job.cwd, copy.job.script) == ("{code}", "src/train.py")
    assert copy.bundle is not None


@pytest.mark.parametrize("script", ["no.py", "folder", "trian.py"])
def test_a_script_that_cannot_run(script: str) -> None:
    write("train.py")
    Path("folder").mkdir()
    with pytest.raises(InvalidJob) as caught:
        settle(Settings(script=script))
    assert caught.value.field == "script"
    assert caught.value.hint
    assert ("train.py" in caught.value.hint) == (script == "trian.py")


def test_a_name_that_is_nothing_like_it_is_not_suggested() -> None:
    write("stdin.py")
    with pytest.raises(InvalidJob) as caught:
        settle(Settings(script="train"))
    assert "stdin" not in caught.value.hint


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["python", "src/train.py", "--data", "other.py"], "train"),
        (["/opt/conda/bin/python3.11", "-u", "train.py"], "train"),
        (["python", "-m", "pkg.train", "x.py"], "train"),
        (["mpirun", "-n", "2", "python", "train.py"], "train"),
        (["torchrun", "--nnodes", "1", "fit.py"], "fit"),
        (["bash", "start-all.sh"], "start-all"),
        (["python", "-c", "print(1)"], "python"),
        (["./fit", "conf.py"], "fit"),
    ],
)
def test_a_command_that_starts_a_script_is_named_after_it(command: list[str], stem: str) -> None:
    assert settle(Settings(command=command)).job.name[: -len("-abcd")] == stem


def test_far_more_ranks_than_cores_are_refused_on_this_machine() -> None:
    write("train.py")
    around = Surroundings(folder=Path.cwd(), environment=dict(os.environ), cores=2)
    many = Settings(script="train.py", workers=1000)
    with pytest.raises(InvalidJob, match="makes 1000 ranks, and this machine has 2 cores") as caught:
        prepare(many, around, HERE)
    assert "--force" in caught.value.hint
    with pytest.raises(InvalidJob, match="makes 200 ranks"):
        prepare(replace(many, workers=10, procs=20), around, HERE)
    with pytest.raises(InvalidJob, match="makes 1000 ranks"):
        prepare_function(write, ("x",), {}, Settings(workers=1000), around, HERE)
    assert prepare(replace(many, force=True), around, HERE).job.workers == 1000
    assert prepare(replace(many, workers=100), around, HERE).job.workers == 100
    assert prepare(many, replace(around, cores=64), HERE).job.workers == 1000
    assert prepare(replace(many, framework="plain", image="my/image"), around, THERE).job.workers == 1000


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("sh", "it is a program: `echelon run -- sh ...`"),
        ("python3", "`echelon run SCRIPT`, or"),
        ("env", "did you mean env.py?"),
        ("bin/sh", "-- COMMAND"),
    ],
)
def test_a_program_where_a_script_belongs(
    script: str, hint: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sh", "python3", "env"):
        write(f"bin/{name}.d/{name}").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (folder / "bin").iterdir())))
    write("env.py")
    with pytest.raises(InvalidJob) as caught:
        settle(Settings(script=script))
    assert hint in caught.value.hint


def test_a_file_where_a_module_belongs() -> None:
    write("pkg/train.py")
    with pytest.raises(InvalidJob) as caught:
        settle(Settings(module="pkg/train.py"))
    assert "-m pkg.train" in caught.value.hint
    settle(Settings(module="pkg.train"))


def test_a_folder_with_a_main_is_a_script() -> None:
    write("app/__main__.py", "import torch\n")
    assert settle(Settings(script="app")).job.script == "app"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("notes.ipynb", "echelon.run"), ("job.yaml", "-f job.yaml"), ("data.json", "-f data.json")],
)
def test_what_is_not_a_script_is_not_run_as_one(home: Path, name: str, hint: str) -> None:
    Path(name).write_text("{}")
    with pytest.raises(InvalidJob) as caught:
        settle(Settings(script=name))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("content", "mode", "hint"),
    [
        (b"\x7fELF\2\1\1\0\0", 0o755, "-- ./launch"),
        (b"#!/usr/bin/env bash\ntorchrun train.py\n", 0o755, "-- ./launch"),
        (b"#!/usr/bin/perl\n", 0o644, "-- /usr/bin/perl launch"),
    ],
)
def test_other_programs_are_not_given_to_python(content: bytes, mode: int, hint: str) -> None:
    path = Path("launch")
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(InvalidJob, match="is not a Python script") as caught:
        settle(Settings(script="launch"))
    assert hint in caught.value.hint


@pytest.mark.parametrize("content", [b"print(1)\n", b"#!/usr/bin/env python3\n", b"", b"PK\3\4\n\0"])
def test_a_python_script_needs_no_suffix(content: bytes) -> None:
    Path("launch").write_bytes(content)
    assert settle(Settings(script="launch")).job.script == "launch"


def test_resuming_needs_a_folder(home: Path) -> None:
    Path("train.py").touch()
    with pytest.raises(InvalidJob, match="reuse_results"):
        settle(Settings(script="train.py", reuse_results=True))
    assert settle(Settings(script="train.py", reuse_results=True, name="fm")).job.resume


def test_the_only_role_of_horovod_is_the_chief(home: Path) -> None:
    Path("train.py").write_text("import horovod.torch as hvd")
    assert settle(Settings(script="train.py", roles={"chief": 1})).job.framework == "horovod"
    with pytest.raises(InvalidJob, match="is not a role of Horovod"):
        settle(Settings(script="train.py", roles={"ps": 1}))


@pytest.mark.parametrize(("library", "ranks"), [("torch", 4), ("tensorflow", 1), ("jax", 1), ("xgboost", 4)])
def test_how_many_processes_drive_the_gpus_of_a_worker(library: str, ranks: int, home: Path) -> None:
    Path("train.py").write_text(f"import {library}")
    assert settle(Settings(script="train.py", gpus=4)).job.procs == ranks
    assert settle(Settings(script="train.py", gpus=4, procs=2)).job.procs == 2


@pytest.mark.parametrize(("library", "roles"), [("jax", {"chief": 1}), ("xgboost", {"ps": 1})])
def test_roles_that_a_framework_does_not_have(library: str, roles: dict[str, int], home: Path) -> None:
    Path("train.py").write_text(f"import {library}")
    with pytest.raises(InvalidJob, match="is not a role of"):
        settle(Settings(script="train.py", roles=roles))
    assert settle(Settings(script="train.py", framework="xgboost", roles={"chief": 1})).job.roles


def test_roles_are_not_for_torch(home: Path) -> None:
    Path("train.py").write_text("import torch")
    with pytest.raises(InvalidJob, match="role"):
        settle(Settings(script="train.py", roles={"ps": 1}))
    with pytest.raises(InvalidJob, match="launcher"):
        settle(Settings(script="train.py", roles={"launcher": RoleSettings(command="mpirun")}))


def test_a_role_with_a_command_of_its_own_runs_beside_any_framework(home: Path) -> None:
    Path("train.py").write_text("import torch")
    Path("plain.py").touch()
    roles = {"ps": RoleSettings(command="serve")}
    assert settle(Settings(script="train.py", roles=roles)).job.framework == "torch"
    assert settle(Settings(script="plain.py", roles=roles)).job.framework == "plain"
    both: dict[str, int | RoleSettings] = {**roles, "chief": 1}
    assert settle(Settings(script="plain.py", roles=both)).job.framework == "tensorflow"


def test_the_folder_is_the_one_that_is_given_and_not_the_process_s(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared from afar, a job is the same as prepared on the spot; only its name is drawn anew."""
    write("pyproject.toml", "[project]\nname = 'x'\n")
    write("sub/train.py", "import helper\n")
    write("helper.py", "import torch\n")
    write("pkg/__main__.py", "import tensorflow\n")
    python_in("sub/venv")
    cases = [
        (Settings(script="sub/train.py", name="fm"), HERE),
        (Settings(script="sub/train.py", name="fm", python="sub/venv/bin/python"), HERE),
        (Settings(script="sub/train.py", name="fm", snapshot=True), HERE),
        (Settings(script="sub/train.py", name="fm"), THERE),
        (Settings(module="pkg", name="fm"), HERE),
        (Settings(command=["python3", "sub/train.py"], name="fm"), HERE),
    ]
    there = tmp_path.resolve()
    on_the_spot = [settle(settings, traits) for settings, traits in cases]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    from_afar = [settle(settings, traits, there) for settings, traits in cases]
    assert [replace(each, bundle=None) for each in from_afar] == [
        replace(each, bundle=None) for each in on_the_spot
    ]
    digests = [each.bundle and each.bundle.digest for each in on_the_spot]
    assert [each.bundle and each.bundle.digest for each in from_afar] == digests
    assert from_afar[0].job.framework == "torch"
    with pytest.raises(InvalidJob, match=r"'train\.py' does not exist"):
        settle(Settings(script="train.py"), HERE, there)


def test_the_environment_is_the_one_that_is_given() -> None:
    write("train.py")
    venv = python_in("venv")
    here = Surroundings(folder=Path.cwd(), environment={"VIRTUAL_ENV": str(Path("venv").absolute())})
    assert prepare(Settings(script="train.py"), here, HERE).job.python == venv


def test_a_function_here_and_elsewhere() -> None:
    here = Surroundings(folder=Path.cwd(), environment={})
    local = prepare_function(write, ("x",), {}, Settings(), here, HERE)
    assert (local.job.python, local.job.cwd) == (sys.executable, str(Path.cwd()))
    remote = prepare_function(textwrap.dedent, ("x",), {}, Settings(), here, THERE)
    assert (remote.job.python, remote.job.cwd) == (None, "{code}")


def test_the_framework_of_a_cell_is_by_its_imports_and_those_that_it_needs() -> None:
    here = Surroundings(folder=Path.cwd(), environment=dict(os.environ))
    cell = prepare_cell("import torch\ntorch.zeros(1)", {}, (), Settings(), here, HERE)
    assert cell.job.framework == "torch"
    assert cell.job.name.startswith("cell-")
    plain = prepare_cell("print(1)", {}, (), Settings(), here, THERE)
    assert (plain.job.framework, plain.job.cwd) == ("plain", "{code}")


def test_a_shell_script_is_run_by_the_shell() -> None:
    write("train.sh", "exec python train.py")
    job = settle(Settings(script="train.sh", args=("--lr", "1"))).job
    assert (job.script, job.command, job.args) == (None, ("bash", "train.sh"), ("--lr", "1"))
    with pytest.raises(InvalidJob, match="does not exist"):
        settle(Settings(script="tain.sh"))
    shipped = settle(Settings(script="train.sh"), THERE).bundle
    assert shipped is not None


def test_the_framework_of_a_command() -> None:
    write("own/train.py", "import tensorflow")
    write("quiet.py", "print('no framework')")
    for command, framework in {
        ("./train.sh",): "plain",
        ("bash", "-c", "python quiet.py"): "plain",
        ("python", "-m", "installed.module"): "plain",
        ("python", "-m", "own.train"): "tensorflow",
        ("python", "quiet.py"): "plain",
    }.items():
        assert settle(Settings(command=command)).job.framework == framework, command


@pytest.mark.parametrize("traits", [HERE, THERE])
def test_requirements_that_are_not_there_are_told_before_anything_is_packed(traits: Traits) -> None:
    write("train.py")
    Path("listed").mkdir()
    here = Surroundings(folder=Path.cwd(), environment={})
    for name, problem in (("gone.txt", "is not there"), ("listed", "is not a file that can be read")):
        asked = Settings(script="train.py", requirements=name)
        with pytest.raises(InvalidJob, match=problem) as caught:
            settle(asked, traits)
        assert caught.value.field == "requirements"
        assert "--pip" in caught.value.hint
        with pytest.raises(InvalidJob, match=problem):
            prepare_cell("1", {}, (), Settings(requirements=name), here, traits)
    write("listed/here.txt", "numpy\n")
    settled = settle(Settings(script="train.py", requirements="listed/here.txt"), traits)
    assert settled.job.pod.requirements == "listed/here.txt"
