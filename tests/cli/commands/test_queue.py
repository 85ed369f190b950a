"""`echelon queue` on this machine, with imagined GPUs and real runs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli.nvidia_smi import StandIn

Call = Callable[..., subprocess.CompletedProcess[str]]
HOLD = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.02)\n"


def test_the_queue_of_this_machine(gpus: StandIn, call: Call, write: Callable[..., Path]) -> None:
    assert call("queue").stdout == "no run is queued\n"
    gpus.show(1)
    script = str(write("hold.py", HOLD))
    first = ("run", "-d", "--name", "holds", "--gpus", "1", "--timeout", "1h", script)
    assert call(*first).returncode == 0
    for words in (("--name", "old"), ("--name", "urgent", "--priority", "3")):
        assert call("run", "-d", "--gpus", "1", *words, script).returncode == 0
    now = time.time()
    found = json.loads(call("queue", "-o", "json").stdout)
    urgent, old = found["runs"]
    assert (urgent["name"], urgent["position"], urgent["priority"], urgent["gpus"]) == ("urgent", 1, 3, 1)
    assert "held by holds" in urgent["reason"]
    assert now < urgent["earliest"] < now + 3601
    assert (old["name"], old["reason"], old["earliest"]) == ("old", "queued behind urgent", None)
    (holds,) = found["holding"]
    assert (holds["name"], holds["gpus"]) == ("holds", 1)
    lines = call("queue").stdout.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["POSITION", "RUN"], ["1", "urgent"], ["2", "old"]]
    assert [line.split()[:2] for line in lines[4:]] == [["HELD", "BY"], ["holds", "1"]]
    Path("go").touch()
    for name in ("holds", "urgent", "old"):
        assert call("wait", name).returncode == 0
