"""The dashboard in a real browser, over runs that were started from the shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.ui.chromium import start_visitor, the_chromium

Call = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = """
import os, sys, time
rank = os.environ["ECHELON_WORKER"]
print("hello from", rank, flush=True)
print("<script>document.title='taken'</script> \\x1b]0;taken\\x07\\x1b[31mred\\x1b[0m", flush=True)
for step in range(100_000):
    print(f"step={step}/100000 loss={1 / (step + 1):.4f}", flush=True)
    time.sleep(0.5 if step < 20 else 10)  # so that a page has all lines, however long it takes to look
"""


def start_dashboard(*words: str) -> tuple[subprocess.Popen[str], str]:
    """A dashboard and its address."""
    made = subprocess.Popen(
        [sys.executable, "-m", "echelon.cli.main", "ui", "--no-browser", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert made.stdout is not None
    with made.stdout:
        return made, made.stdout.readline().strip()


def tell(visitor: subprocess.Popen[str], line: str) -> None:
    """Say something to the visitor, if it is still there: else its own words say why."""
    assert visitor.stdin is not None
    if visitor.poll() is None:
        visitor.stdin.write(f"{line}\n")
        visitor.stdin.flush()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots are kept."""
    folder = Path(os.environ.get("ECHELON_SCREENSHOTS") or tmp_path / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def ended(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """End processes after a block, however it went."""
    try:
        yield
    finally:
        for each in processes:
            if each.stdin is not None:
                each.stdin.close()
            if each.poll() is None:
                each.kill()
                each.wait(PATIENCE)


@pytest.mark.core
def test_a_run_appears_is_watched_and_is_stopped_in_a_browser(
    cli: Call, home: Path, tmp_path: Path, shots: Path
) -> None:
    chromium = the_chromium()
    Path("train.py").write_text(TRAIN)
    said = tmp_path / "said"
    dashboard, address = start_dashboard()
    with said.open("w") as out, ended(dashboard):
        visitor = start_visitor("watch", chromium, address, shots, out=out)
        with ended(visitor):
            wait_until(
                lambda: "looking" in said.read_text() or visitor.poll() is not None, "the visitor to look"
            )
            assert cli("run", "-d", "-n", "2", "--name", "fm", "train.py").returncode == 0
            assert visitor.wait(PATIENCE) == 0, said.read_text()
    assert '"state":"stopped"' in cli("status", "fm", "-o", "json").stdout.replace(" ", "")


@pytest.mark.slow
def test_a_run_is_watched_and_stopped_in_a_browser(
    cli: Call, home: Path, tmp_path: Path, shots: Path
) -> None:
    chromium = the_chromium()
    Path("train.py").write_text(TRAIN)
    Path("bad.py").write_text("raise ValueError('no luck')\n")
    assert cli("run", "--name", "bad", "bad.py").returncode == 1
    assert cli("run", "-d", "-n", "2", "--name", "fm", "train.py").returncode == 0
    said = tmp_path / "said"
    dashboard, address = start_dashboard()
    with said.open("w") as out:
        visitor = start_visitor("visit", chromium, address, shots, out=out)
        assert visitor.stdin is not None
        with visitor.stdin:
            try:
                wait_until(
                    lambda: "looked around" in said.read_text() or visitor.poll() is not None,
                    "the visitor to look around",
                    patience=120.0,
                )
                dashboard.send_signal(signal.SIGINT)
                assert dashboard.wait(PATIENCE) == 130
                tell(visitor, "")
                wait_until(
                    lambda: "alone" in said.read_text() or visitor.poll() is not None, "the loss to be told"
                )
                dashboard, address = start_dashboard("--port", address.split(":")[2].partition("/")[0])
                tell(visitor, address)
                assert visitor.wait(PATIENCE) == 0, said.read_text()
            finally:
                for each in (visitor, dashboard):
                    if each.poll() is None:
                        each.kill()
                        each.wait(PATIENCE)
    assert said.read_text().split("\n")[:-1] == [
        "seen",
        "filtered",
        "stopped",
        "looked around",
        "alone",
        "together again",
    ]
    assert '"state":"stopped"' in cli("status", "fm", "-o", "json").stdout.replace(" ", "")
