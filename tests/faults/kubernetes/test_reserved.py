"""Two runs that would write to one folder, at home or on a volume: the second is refused, and told why."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Terminal

pytestmark = [pytest.mark.cluster]

WRITES = """
import os, sys, time
with open(os.environ["ECHELON_OUTPUT"] + "/whose", "w") as file:
    file.write(os.environ["ECHELON_RUN"])
print("written", flush=True)
time.sleep(float(sys.argv[1]))
"""
STATE = 115  # the exit code of StateTrouble
Done = CompletedProcess[str]


def submit(terminal: Terminal, name: str, *words: str, seconds: str = "600") -> Done:
    return terminal.call("run", "-d", "--name", name, "--image", terminal.image, *words, "writes.py", seconds)


@pytest.mark.core
def test_a_folder_at_home(terminal: Terminal) -> None:
    terminal.write("writes.py", WRITES)
    assert submit(terminal, "a", "--results", "out").returncode == 0
    (terminal.folder / "link").symlink_to("out")
    for words in (("out",), ("link", "--reuse-results"), ("out", "--on", "local")):
        refused = submit(terminal, "b", "--results", *words)
        assert refused.returncode == STATE, refused.stderr
        assert f"k8s://{terminal.kubectl.namespace}/a" in refused.stderr
    assert terminal.left_of("b") == []

    assert terminal.call("stop", "a").returncode == 0
    assert (terminal.folder / "out" / "whose").read_text() == "a"
    taken = submit(terminal, "b", "--results", "link", "--reuse-results", seconds="0")
    assert taken.returncode == 0, taken.stderr
    assert terminal.call("wait", "b").returncode == 0
    assert (terminal.folder / "out" / "whose").read_text() == "b"


@pytest.mark.slow
def test_results_that_were_not_fetched_yet_are_not_mixed_with_others(terminal: Terminal) -> None:
    terminal.write("writes.py", WRITES)
    assert submit(terminal, "a", "--results", "out", seconds="0").returncode == 0
    wait_until(lambda: terminal.status("a")["state"] == "succeeded", "the end of run a", PATIENCE)
    taken = submit(terminal, "b", "--results", "out", seconds="0")
    assert taken.returncode == 0, taken.stderr
    assert terminal.call("wait", "b").returncode == 0
    brought = terminal.call("get", "a")
    assert brought.returncode == 0, brought.stderr
    assert (terminal.folder / "out" / "whose").read_text() == "b"
    assert terminal.read("a", "whose") == "a"
    for run in ("a", "b"):
        terminal.check_removal(run)


@pytest.mark.slow
def test_a_folder_of_a_volume(terminal: Terminal, shared_class: str) -> None:
    terminal.write("writes.py", WRITES)
    terminal.kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "shelf"},
            "spec": {
                "storageClassName": shared_class,
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    assert submit(terminal, "a", "--output", "pvc:shelf/x").returncode == 0
    shelf = ("--output", "pvc:shelf/x")
    for words in (shelf, (*shelf, "--reuse-results", "--results", "home")):
        refused = submit(terminal, "b", *words)
        assert refused.returncode == STATE, refused.stderr
        assert "pvc:shelf/x is in use: run 'a' writes to it" in refused.stderr
        wait_until(lambda: terminal.left_of("b") == [], "nothing of b to be left", PATIENCE)
    assert submit(terminal, "c", "--output", "pvc:shelf/y", seconds="0").returncode == 0

    assert terminal.call("stop", "a").returncode == 0
    taken = submit(terminal, "b", "--output", "pvc:shelf/x", "--reuse-results", "--results", "home")
    assert taken.returncode == 0, taken.stderr
    again = terminal.call("resume", "-d", "a")
    assert again.returncode == STATE, again.stderr
    assert "run 'b' writes to it" in again.stderr
    assert terminal.status("a")["state"] == "stopped"
    assert terminal.call("stop", "b").returncode == 0
