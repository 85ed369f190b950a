"""What the tests of the command line share: scripts, a terminal, a program left running, imagined GPUs."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.nvidia_smi import StandIn
from tests.cli.terminal import ECHELON, Terminal
from tests.conftest import PATIENCE, wait_until

from echelon.cli import main

HELLO = """
    import os, sys
    print("hello from", os.environ["ECHELON_WORKER"], *sys.argv[1:])
"""
STAY = """
    import os, pathlib, signal, sys, time

    rank = os.environ.get("RANK") or os.environ["ECHELON_WORKER"]
    out = pathlib.Path(os.environ["ECHELON_OUTPUT"])

    def on_term(*_):
        print("heard SIGTERM", flush=True)
        (out / f"term-{rank}").touch()
        if "--stubborn" not in sys.argv:
            sys.exit(0)

    def on_int(*_):
        print("heard SIGINT", flush=True)
        (out / f"int-{rank}").touch()
        if "--stubborn" not in sys.argv:
            sys.exit(0)

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, on_int)
    print("ready", rank, flush=True)  # first: who sees the file below may send a signal at once
    (out / f"pid-{rank}.tmp").write_text(str(os.getpid()))
    (out / f"pid-{rank}.tmp").rename(out / f"pid-{rank}")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""


class Background:
    """`echelon` as a program that goes on while the test does other things; its output is in files."""

    def __init__(self, *words: str, files: Path, stdin: int = subprocess.DEVNULL) -> None:
        files.mkdir()
        self._out, self._err = files / "out", files / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen([*ECHELON, *words], stdout=out, stderr=err, stdin=stdin)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def end(self) -> int:
        return self.process.wait(PATIENCE)


@pytest.fixture
def call(home: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line in this process: for the many commands whose own process is not the point."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = main.call(list(words))
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)

    return call


@pytest.fixture
def write(home: Path) -> Callable[..., Path]:
    """Write a file in the working folder."""

    def write(name: str, text: str) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def hello(write: Callable[..., Path]) -> str:
    """A script that says hello."""
    return str(write("hello.py", HELLO))


@pytest.fixture
def stay(write: Callable[..., Path]) -> str:
    """A script that runs until the file `go` is there; `pid-RANK` and `term-RANK` are in its results."""
    return str(write("stay.py", STAY))


@pytest.fixture
def terminal(home: Path) -> Iterator[Callable[..., Terminal]]:
    """Start `echelon` on a terminal of its own."""
    with ExitStack() as stack:

        def start(*words: str, **more: object) -> Terminal:
            made = Terminal(*words, **more)  # type: ignore[arg-type]
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture
def background(home: Path, tmp_path: Path) -> Iterator[Callable[..., Background]]:
    """Start `echelon` and go on."""
    started: list[Background] = []

    def start(*words: str, **more: object) -> Background:
        started.append(Background(*words, files=tmp_path / f"background-{len(started)}", **more))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(PATIENCE)


@pytest.fixture
def gpus(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A machine with imagined GPUs: none, until the test shows some."""
    stand_in = StandIn(tmp_path / "driver")
    monkeypatch.setenv("PATH", f"{stand_in.folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return stand_in


def wait_for(*paths: str | Path) -> None:
    """Wait until files are there."""
    wait_until(lambda: all(Path(path).exists() for path in paths), f"{', '.join(map(str, paths))}")
