"""The agent as one file, run by the oldest and the newest Python there is; and pip from its wheel."""

from __future__ import annotations

import io
import json
import marshal
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.pods import Pods, parts, pods_here
from tests.conftest import PATIENCE, need_python

from echelon.agent.pyz import bytecode_name
from echelon.bundle import pack_files
from echelon.bundle.zipapp import (
    agent_archive,
    agent_sources,
    archive_of,
    compile_start,
    module_name,
    pip_wheel,
)
from echelon.engines.task import make_task
from echelon.model.job import Job
from echelon.model.plan import Launch, Placement, Plan, Seat
from echelon.model.run import Record, RunRef
from echelon.model.world import Group, World

CODE = pack_files({"train.py": b"print('hello')"})
IMPORTS = "import time:"
SPOILED = b"raise SystemError('this source was compiled')\n"


@pytest.fixture
def pods() -> Iterator[Pods]:
    with pods_here() as made:
        yield made


def run_in(pods: Pods) -> list[list[str]]:
    """Run two workers with code that they unpack, and return what their ranks said. Their logs tell what they
    import.
    """
    pods.script("import runpy; runpy.run_path('train.py')", workers=2)
    for worker in range(2):
        target = str(pods.folder / f"code-{worker}")
        pieces = parts(pods.folder, CODE.data)
        bundle = {"parts": pieces, "digest": CODE.digest, "target": target}
        pods.start(worker, cwd=target, bundle=bundle, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert [pods.code(worker) for worker in range(2)] == [0, 0], [pods.log(worker) for worker in range(2)]
    return [[line for line in pods.said(worker) if IMPORTS not in line] for worker in range(2)]


def imported_before_ranks(pods: Pods, worker: int) -> set[str]:
    log = b"\n".join(pods.log(worker))
    found = re.findall(rb"\| +(echelon[\w.]*)$", log.partition(b"worker-running")[0], re.MULTILINE)
    return {name.decode() for name in found}


def test_a_start_compiles_no_source(pods: Pods) -> None:
    """Every module that has bytecode would end the agent if its source were compiled; and every module that
    is imported until the ranks start has.
    """
    sources = agent_sources()
    bytecode = compile_start(sources)
    names = set(marshal.loads(bytecode))
    spoiled = {path: SPOILED if module_name(path) in names else text for path, text in sources.items()}
    pods.archive.write_bytes(archive_of({**spoiled, bytecode_name(): bytecode}))
    assert run_in(pods) == [["hello"], ["hello"]]
    for worker in range(2):
        imported = imported_before_ranks(pods, worker)
        assert "echelon.agent.gang.wire" in imported, "the log tells them"
        assert imported <= names
    assert len(names) < len(sources) * 2 / 3, "what is needed later is not sent twice"


def test_bytecode_of_another_python_is_not_used(pods: Pods) -> None:
    pods.archive.write_bytes(archive_of({**agent_sources(), "bytecode/cpython-26-62f20d0a": b"of another"}))
    assert run_in(pods) == [["hello"], ["hello"]]


VERSIONS = ["3.8", "newest"]  # the oldest that must do, and the newest to be found


def archive_in(folder: Path) -> Path:
    path = folder / "agent.pyz"
    path.write_bytes(agent_archive())
    return path


def test_the_same_sources_give_the_same_bytes_in_another_process() -> None:
    code = (
        "import sys, os; os.environ['TZ'] = 'Asia/Tokyo';"
        "from echelon.bundle.zipapp import agent_archive; sys.stdout.buffer.write(agent_archive())"
    )
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert again.stdout == agent_archive()
    assert agent_archive() is agent_archive()


def test_it_holds_the_agent_and_nothing_of_the_client() -> None:
    import echelon.agent

    names = zipfile.ZipFile(io.BytesIO(agent_archive())).namelist()
    package = Path(str(echelon.agent.__file__)).parents[2]
    sources = {each.relative_to(package).as_posix() for each in (package / "echelon/agent").rglob("*.py")}
    assert set(names) == {"__main__.py", "echelon/__init__.py"} | sources - {"echelon/agent/pyz.py"}
    assert len(agent_archive()) < 280_000  # it travels with every run


@pytest.mark.parametrize("version", VERSIONS)
def test_it_leads_a_run_from_its_zip(version: str, tmp_path: Path) -> None:
    python = need_python(version)
    secret = tmp_path / "secret"
    secret.write_text("s")
    argv = (python, "-c", "import os, sys; print('hello from', os.environ['ECHELON_RUN']); sys.exit(0)")
    plan = Plan(
        world=World(groups=(Group(workers=1, procs=1),)),
        launches=(Launch(argv=argv),),
        placement=Placement(seats=(Seat(worker=0, node="here"),)),
        threads=(1,),
    )
    record = Record(
        ref=RunRef(engine="k8s", name="fm"),
        job=Job(name="fm", command=argv, cwd=str(tmp_path)),
        created=0.0,
        owner="me",
        results=str(tmp_path),
    )
    task = make_task(
        record,
        plan,
        code=str(tmp_path / "code"),
        output=str(tmp_path / "out"),
        logs=str(tmp_path / "out/logs"),
        reports=str(tmp_path),
        secret=str(secret),
        leader=("127.0.0.1", 0),
        bundle=None,
        join_timeout=10.0,
        project=False,
    )
    for folder in ("out", "out/logs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "task.json").write_text(json.dumps(task))
    done = subprocess.run(
        [python, str(archive_in(tmp_path)), str(tmp_path / "task.json"), "--worker", "0"],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/", env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "hello from fm" in done.stdout
    assert '"outcome"' in done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_it_compiles_each_module_once_and_shows_its_lines_in_tracebacks(version: str, tmp_path: Path) -> None:
    """`zipimport` compiles twice. What is compiled is counted in the process itself, by an audit hook."""
    python = need_python(version)
    code = (
        "import collections, linecache, runpy, sys\n"
        "archive, compiled = sys.argv[1], collections.Counter()\n"
        "count = lambda args: compiled.update([str(args[1])] * (args[0] is not None))\n"
        "sys.addaudithook(lambda event, args: count(args) if event == 'compile' else None)\n"
        "import os; os._exit = sys.exit\n"
        "sys.argv, sys.path[0] = [archive, 'files', 'list', '.'], archive\n"
        "try: runpy.run_path(archive, run_name='__main__')\n"
        "except SystemExit: pass\n"
        "module = sys.modules['echelon.agent.files.tree']\n"
        "line = linecache.getline(module.__file__, 1, vars(module))\n"
        "ours = {name: times for name, times in compiled.items() if 'agent.pyz/echelon' in name}\n"
        "print(line[:3], len(ours) > 3, set(ours.values()), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [python, "-c", code, str(archive_in(tmp_path))],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1:] == ['""" True {1}']


def test_what_it_says_reaches_a_pipe_though_it_leaves_abruptly(tmp_path: Path) -> None:
    """`agent.pyz files list` writes through Python's own buffers."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/one.txt").write_text("1")
    done = subprocess.run(
        [sys.executable, str(archive_in(tmp_path)), "files", "list", str(tmp_path / "tree")],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, "one.txt" in done.stdout) == (0, True), done.stderr


def test_pip_runs_from_its_wheel(tmp_path: Path) -> None:
    wheel = pip_wheel()
    if wheel is None:
        pytest.skip("this Python came without pip's wheel")
    path = tmp_path / "pip.whl"
    path.write_bytes(wheel)
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(path)!r}); sys.argv = ['pip', '--version'];"
        "runpy.run_module('pip', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout
