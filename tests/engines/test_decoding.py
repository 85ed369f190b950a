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


def test_no_other_file_builds_a_decoder_of_a_type() -> None:
    found = []
    source = Path(echelon.__file__).parent
    for file in source.rglob("*.py"):
        if file.name == "decoding.py":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("msgspec."):
                typed = any(keyword.arg == "type" for keyword in node.keywords)
                if typed or node.func.attr in ("Decoder", "convert"):  # type: ignore[attr-defined]
                    found.append(f"{file.relative_to(source)}:{node.lineno}")
    assert found == []
