"""`--checkpoints` in a real cluster: what a lost pod has written comes back to the one that replaces it."""

from __future__ import annotations

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# The first start saves one checkpoint and goes on for ever; one that finds a checkpoint saves the next.
TRAINS = """
import os, pathlib, sys, time
rank = int(os.environ["RANK"])
ckpt = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "ckpt"
ckpt.mkdir(exist_ok=True)
found = sorted(ckpt.glob("step-*"))
step = int(found[-1].name[5:]) if found else 0
print("from", step, flush=True)
if step:
    assert (found[-1] / "model").read_text() == str(step) * 1000
to = ckpt / ("step-%d" % (step + 1))
if rank == 0:
    to.mkdir()
    (to / "model").write_text(str(step + 1) * 1000)
if not step:
    time.sleep(3600)
"""


def submit(terminal: Terminal, name: str, *words: str) -> None:
    terminal.write("train.py", TRAINS)
    more = ("--keep", "24h:100Mi", "--restarts", "3", "--checkpoints", "ckpt", "--image", terminal.image)
    done = terminal.call("run", "-d", "--name", name, *more, *words, "train.py")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: terminal.status(name).get("checkpoint"), "a safe checkpoint", PATIENCE)
    kept = terminal.status(name)["checkpoint"]
    assert (kept["path"], kept["size"]) == ("ckpt/step-1", 1000)
    assert "checkpoint ckpt/step-1, 1000 B, kept " in terminal.call("status", name).stdout


def check_end(terminal: Terminal, name: str, *, workers: int) -> None:
    waited = terminal.call("wait", name)
    assert waited.returncode == 0, waited.stderr
    home = terminal.folder / "runs" / name
    for step in (1, 2):
        assert (home / "ckpt" / f"step-{step}" / "model").read_text() == str(step) * 1000
    shown = terminal.call("logs", name).stdout
    assert shown.count("from 1\n") == workers, shown
    told = terminal.call("events", name).stdout
    assert "got ckpt/step-1 back" in told
    terminal.check_removal(name)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        pytest.param(0, ("--force", "--grace-period=0"), marks=pytest.mark.core, id="leader-killed"),
        pytest.param(1, ("--force", "--grace-period=0"), id="member-killed"),
        pytest.param(0, (), id="leader-deleted"),
    ],
)
def test_a_pod_that_is_replaced(terminal: Terminal, lost: int, words: tuple[str, ...]) -> None:
    submit(terminal, "long", "-n", "2")
    (pod,) = [
        pod["metadata"]["name"]
        for pod in terminal.pods("long")
        if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == str(lost)
    ]
    terminal.kubectl("delete", "pod", pod, "--wait=false", *words)
    check_end(terminal, "long", workers=2)


def test_all_pods_of_a_run_at_once(terminal: Terminal) -> None:
    submit(terminal, "gone", "-n", "2")
    chosen = "echelon.dev/run=gone,app.kubernetes.io/component=worker"
    terminal.kubectl("delete", "pods", "-l", chosen, "--wait=false", "--force", "--grace-period=0")
    check_end(terminal, "gone", workers=2)


def test_with_a_volume_nothing_of_it_is_needed(terminal: Terminal) -> None:
    terminal.write("train.py", TRAINS)
    words = ("--output", "new:1Gi", "--checkpoints", "ckpt", "--image", terminal.image, "train.py")
    shown = terminal.call("run", "--dry-run", "--name", "volume", *words)
    assert shown.returncode == 0, shown.stderr
    assert "volume" in shown.stderr
    assert "keeper" not in shown.stdout
