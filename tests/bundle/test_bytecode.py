"""Agents that start from the client's bytecode, and those that cannot use it."""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterator

import pytest
from tests.agent.pods import Pods, parts, pods_here

from echelon.agent.pyz import bytecode_name
from echelon.bundle import pack_files
from echelon.bundle.bytecode import compile_start, module_name
from echelon.bundle.zipapp import agent_sources, archive_of

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
