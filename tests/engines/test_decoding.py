"""That threads which read values of the same types at the same moment do not crash the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import echelon
from echelon.engines.decoding import convert, decode, decoder_of
from echelon.model.event import Event, RootCause

RAW = b'{"kind":"finished","at":1.0,"outcome":"failed","exit_code":1,"cause":{"summary":"x","exit_code":1}}'
# A process of its own, since what would crash is the interpreter; the second thread begins a moment later.
TWO_THREADS = f"""
import sys, threading, time
from echelon.engines.decoding import convert, decode
from echelon.model.event import Event
from echelon.model.run import Record

def second():
    began = time.perf_counter()
    while time.perf_counter() - began < float(sys.argv[1]):
        pass
    for _ in range(3):
        decode({RAW!r}, Event)
        convert({{"kind": "note", "at": "1.5"}}, Event)

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=decode, args=({RAW!r}, Event)), threading.Thread(target=second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("delay", [f"0.000{number}" for number in range(1, 9)])
def test_two_threads_at_once(delay: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_THREADS, delay], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_decoded() -> None:
    cause = RootCause(summary="x", exit_code=1)
    assert decode(RAW, Event) == Event(kind="finished", at=1.0, outcome="failed", exit_code=1, cause=cause)
    assert decoder_of(Event) is decoder_of(Event)
    assert convert({"kind": "note", "at": "1.5"}, Event) == Event(kind="note", at=1.5)


def built(code: str) -> list[int]:
    """The lines of a program on which msgspec builds what reads a type, by whatever name it is imported."""
    if "msgspec" not in code:  # most files; going through a syntax tree takes long
        return []
    tree = ast.parse(code)
    modules, names = {"msgspec"}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or each.name for each in node.names if each.name.startswith("msgspec")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msgspec"):
            names |= {each.asname or each.name for each in node.names}
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in names or any(called.startswith(f"{module}.") for module in modules):
            typed = any(keyword.arg == "type" for keyword in node.keywords)
            if typed or called.rpartition(".")[2] in ("Decoder", "convert"):
                found.append(node.lineno)
    return found


def test_no_other_file_builds_a_decoder_of_a_type() -> None:
    source = Path(echelon.__file__).parent
    found = {
        str(file.relative_to(source)): lines
        for file in source.rglob("*.py")
        if (lines := built(file.read_text("utf-8")))
    }
    assert list(found) == ["engines/decoding.py"]


@pytest.mark.parametrize(
    "code",
    [
        "import msgspec\nmsgspec.convert({}, int)",
        "import msgspec.json as j\nj.decode(b'', type=int)",
        "from msgspec import convert as c\nimport msgspec\nmsgspec.json.Decoder(int)",
        "from msgspec.json import Decoder\n\nDecoder(int)",
    ],
)
def test_it_would_be_found(code: str) -> None:
    assert len(built(code)) == 1


def test_the_report_for_msgspec_has_a_program_that_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "upstream" / "msgspec-threads.md"
    program = page.read_text("utf-8").split("```python\n")[1].split("```")[0]
    compile(program, str(page), "exec")
    assert "echelon" not in program
