"""Pipelines in a real cluster: every step is a pod, and what is between steps is on a volume."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.faults.kubernetes.terminal import Terminal
from tests.notebook.books import write_book

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CELLS = [
    ("imports", "import os, pathlib"),
    (
        "step:train distribute:torch workers:2",
        "rank = os.environ['RANK']\nprint('rank', rank, pathlib.Path('beside.txt').read_text())",
    ),
    ("", "total = sum([1, 2])\npathlib.Path('model').write_text(rank)"),
    ("step:use prev:train limit:memory:64Mi", "blocks = [bytearray(10**7) for _ in range(60)]"),
    ("", "print(total, os.getcwd(), pathlib.Path('model').read_text())"),
    ("pipeline-metrics", "print(total)"),
]


@pytest.mark.core
def test_a_pipeline_in_pods_goes_on_after_a_step_that_had_too_little_memory(terminal: Terminal) -> None:
    terminal.write("beside.txt", "beside")
    book = terminal.folder / "book.ipynb"
    write_book(book, CELLS)
    words = ("notebook", "run", "book.ipynb")
    failed = terminal.call(*words, "--image", terminal.image, "--volume", "new:50Mi@shared")
    assert "step use failed in cell 4: rank 0 was killed by SIGKILL: out of memory" in failed.stderr
    assert failed.returncode == 137
    assert {"[train] rank 0 beside", "[train 1] rank 1 beside"} <= set(failed.stdout.splitlines())

    book.write_text(book.read_text().replace("limit:memory:64Mi", "limit:memory:1Gi"))
    going_on = terminal.call(*words, "--from", "use")  # in the image of that run
    assert going_on.returncode == 0, going_on.stderr
    assert "[use] 3 /pipeline/work 0" in going_on.stdout
    assert "total: 3" in going_on.stdout
    record = json.loads(terminal.read("book-1", "pipeline.json"))
    assert [step["state"] for step in record["steps"].values()] == ["kept", "succeeded"]
    assert terminal.read("book-1", "work/model") == "0"
    executed = json.loads(terminal.read("book-1", "notebook.ipynb"))
    assert executed["cells"][1]["outputs"][0]["text"] == "rank 0 beside\n"

    assert "2 steps" in terminal.call("ps", "-a").stdout
    claims = terminal.kubectl("get", "persistentvolumeclaims", "-o", "name").split()
    assert claims == ["persistentvolumeclaim/book-1"]
    assert "volume book-1, which was made for book-1, is removed" in terminal.call("rm", "book-1").stderr
    terminal.wait_for_nothing("book-1")
    gone = terminal.call(*words, "--only", "use")
    assert "that volume is gone" in gone.stderr
    assert gone.returncode == 110
    record = json.loads(terminal.read("book-1", "pipeline.json"))
    assert [step["state"] for step in record["steps"].values()] == ["kept", "succeeded"]


def test_a_stop_lets_no_waiting_step_start_and_a_killed_executor_is_lost(terminal: Terminal) -> None:
    cells = [
        ("imports", "import pathlib, time"),
        ("step:first", "print('first began', flush=True)\ntime.sleep(600)"),
        ("step:second", "pathlib.Path('second').touch()"),
    ]
    write_book(terminal.folder / "two.ipynb", cells)
    words = ("notebook", "run", "two.ipynb", "--image", terminal.image, "--volume", "new:50Mi@shared")

    def state_of(name: str) -> set[str]:
        listed = [line.split() for line in terminal.call("ps", "-a").stdout.splitlines()]
        told = json.loads(terminal.call("status", name, "-o", "json").stdout)
        return {told["state"], *(row[1] for row in listed if row[0] == name)}

    command = terminal.start(*words, "--parallel", "1")
    command.wait_for("first began")
    stopped = terminal.call("stop", "two-1")
    assert "two-1 stopped" in stopped.stdout, stopped.stderr
    assert command.wait() == 143
    record = json.loads(terminal.read("two-1", "pipeline.json"))
    assert [step["state"] for step in record["steps"].values()] == ["stopped", "not-reached"]
    assert "two-1-second" not in terminal.call("ps", "-a", "-q").stdout
    assert state_of("two-1") == {"stopped"}

    command = terminal.start(*words, "--parallel", "1")
    command.wait_for("first began")
    told = json.loads(terminal.call("status", "two-2", "-o", "json").stdout)
    os.kill(next(iter(told["workers"][0]["rank_pids"].values())), signal.SIGKILL)  # the executor
    assert command.wait() == 117, command
    assert state_of("two-2") == {"lost"}
    listed = {row["name"]: row["state"] for row in json.loads(terminal.call("ps", "-o", "json").stdout)}
    assert listed == {"two-2": "lost", "two-2-first": "running"}  # its step goes on
    assert terminal.call("rm", "two-2").returncode != 0
    terminal.call("stop", "two-2")
    assert state_of("two-2") == {"lost"}
    assert not terminal.call("ps", "-q").stdout
    removed = terminal.call("rm", "two-1", "two-2").stderr
    assert "volume two-1, which was made for two-1, is removed" in removed
    assert "volume two-2 stays: files of the steps of two-2 are there alone" in removed


def test_a_killed_executor_is_taken_up_with_the_step_that_went_on(terminal: Terminal) -> None:
    cells = [
        ("imports", "import pathlib, time"),
        ("step:first", "print('first began', flush=True)\ntime.sleep(20)\nx = 5"),
        ("step:second prev:first", "print('x is', x)"),
    ]
    write_book(terminal.folder / "two.ipynb", cells)
    words = ("notebook", "run", "two.ipynb", "--image", terminal.image, "--volume", "new:50Mi@shared")
    command = terminal.start(*words)
    command.wait_for("first began")
    told = json.loads(terminal.call("status", "two-1", "-o", "json").stdout)
    os.kill(next(iter(told["workers"][0]["rank_pids"].values())), signal.SIGKILL)
    command.wait()
    pods = [pod["metadata"]["uid"] for pod in terminal.pods("two-1-first")]
    resumed = terminal.call("resume", "two-1")
    assert resumed.returncode == 0, resumed.stderr
    assert "[second] x is 5" in resumed.stdout
    assert [pod["metadata"]["uid"] for pod in terminal.pods("two-1-first")] == pods
    assert terminal.read("two-1", "notebook.ipynb")
    terminal.check_removal("two-1")
