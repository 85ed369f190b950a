"""`--checkpoints` in a real cluster: what a lost pod has written comes back to the one that replaces it."""

from __future__ import annotations

from dataclasses import replace

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


# Rank 0 saves one checkpoint, and all go on for ever.
GOES_ON = """
import os, pathlib, time
ckpt = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "ckpt"
ckpt.mkdir(exist_ok=True)
if os.environ["RANK"] == "0":
    (ckpt / "step-1").mkdir()
    (ckpt / "step-1" / "model").write_text("1" * 1000)
    (ckpt.parent / "other").write_text("x")
print("saved", flush=True)
time.sleep(3600)
"""


def start_for_good(terminal: Terminal, name: str) -> None:
    terminal.write("train.py", GOES_ON)
    more = ("--keep", "24h:100Mi", "--checkpoints", "ckpt", "--image", terminal.image)
    done = terminal.call("run", "-d", "-n", "2", "--name", name, *more, "train.py")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: terminal.status(name).get("checkpoint"), "a safe checkpoint", PATIENCE)


def check_saved(terminal: Terminal, name: str) -> None:
    """The safe checkpoint is at home, and if something else is not, that is said: a worker whose pod is
    deleted by force may still have given all that it had.
    """
    waited = terminal.call("wait", name)
    assert waited.returncode in (117, 123), waited.stderr
    home = terminal.folder / "runs" / name
    assert (home / "ckpt" / "step-1" / "model").read_text() == "1" * 1000
    assert (home / "other").exists() or "worker 0: its files" in waited.stderr, waited.stderr
    terminal.check_removal(name)


def test_a_pod_that_is_lost_for_good(terminal: Terminal) -> None:
    start_for_good(terminal, "lost")
    (pod,) = [
        pod["metadata"]["name"]
        for pod in terminal.pods("lost")
        if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
    ]
    terminal.kubectl("delete", "pod", pod, "--wait=false", "--force", "--grace-period=0")
    check_saved(terminal, "lost")


def test_all_pods_are_lost_with_their_job_and_nobody_tells_the_keeper(terminal: Terminal) -> None:
    """The Job ends at once, and deletes its pods by force: no leader comes any more."""
    start_for_good(terminal, "over")
    chosen = "echelon.dev/run=over,app.kubernetes.io/component=worker"
    terminal.kubectl("patch", "job", "over", "--type=merge", "-p", '{"spec":{"activeDeadlineSeconds":1}}')
    terminal.kubectl("delete", "pods", "-l", chosen, "--wait=false", "--force", "--grace-period=0")
    refused = terminal.call("rm", "over")
    assert refused.returncode != 0
    check_saved(terminal, "over")


def test_a_run_that_is_stopped_has_its_last_checkpoint(terminal: Terminal) -> None:
    saves = GOES_ON.replace("time.sleep(3600)", "") + (
        "import signal\n"
        "def last(*_):\n"
        '    (ckpt / "step-2").mkdir(exist_ok=True)\n'
        '    (ckpt / "step-2" / os.environ["RANK"]).write_text("2" * 1000)\n'
        "    raise SystemExit(0)\n"
        "signal.signal(signal.SIGTERM, last)\n"
        "time.sleep(3600)\n"
    )
    terminal.write("train.py", saves)
    more = ("--keep", "24h:100Mi", "--checkpoints", "ckpt", "--image", terminal.image)
    done = terminal.call("run", "-d", "-n", "2", "--name", "stopped", *more, "train.py")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: terminal.status("stopped").get("checkpoint"), "a safe checkpoint", PATIENCE)
    assert terminal.call("stop", "stopped").returncode == 0
    terminal.call("wait", "stopped")
    home = terminal.folder / "runs" / "stopped"
    for worker, place in enumerate((home, home / "worker-1")):
        assert (place / "ckpt" / "step-2" / str(worker)).read_text() == "2" * 1000
    assert not (home / ".echelon-set-aside").exists()
    assert terminal.status("stopped")["checkpoint"]["path"] == "ckpt/step-2"
    terminal.check_removal("stopped")


# A run that ended goes on from what its keeper has.


def end_after_a_checkpoint(terminal: Terminal, name: str) -> None:
    """Rank 0 has saved step 1, and nobody has fetched anything."""
    submit(terminal, name, "-n", "2")
    # On the machine that has submitted the run, `stop` would fetch its checkpoints.
    elsewhere = terminal.folder.with_name("elsewhere")
    elsewhere.mkdir()
    other = replace(terminal, folder=elsewhere, state=terminal.folder.with_name("elsewhere-state"))
    stopped = other.call("stop", name)
    assert stopped.returncode == 0, stopped.stderr
    assert not (terminal.folder / "runs" / name / "ckpt").exists()


def check_resumed(terminal: Terminal, name: str) -> None:
    done = terminal.call("resume", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("from 1\n") == 2, done.stdout
    home = terminal.folder / "runs" / name
    for step in (1, 2):
        assert (home / "ckpt" / f"step-{step}" / "model").read_text() == str(step) * 1000
    terminal.check_removal(name)


@pytest.mark.core
def test_a_run_that_was_never_fetched_is_resumed(terminal: Terminal) -> None:
    end_after_a_checkpoint(terminal, "again")
    check_resumed(terminal, "again")


def test_a_resumption_that_is_killed_before_the_checkpoints_are_there(terminal: Terminal) -> None:
    """The leader of the new start waits for them; its run is stopped, and resumed again."""
    end_after_a_checkpoint(terminal, "killed")
    killed = terminal.start("resume", "killed")
    wait_until(lambda: terminal.status("killed")["state"] in ("starting", "waiting"), "it to start", PATIENCE)
    killed.process.kill()
    killed.wait()
    if terminal.status("killed")["state"] not in ("failed", "stopped"):
        assert terminal.call("stop", "killed").returncode == 0
    check_resumed(terminal, "killed")


def test_a_detached_resumption_sends_them_before_it_returns(terminal: Terminal) -> None:
    end_after_a_checkpoint(terminal, "detached")
    done = terminal.call("resume", "-d", "detached")
    assert done.returncode == 0, done.stderr
    assert "to the run's keeper" in done.stderr
    check_end(terminal, "detached", workers=2)


def test_without_its_keeper_a_run_is_not_resumed(terminal: Terminal) -> None:
    """Nothing has its checkpoints any more: it does not begin from the start without a word."""
    end_after_a_checkpoint(terminal, "without")
    terminal.kubectl("delete", "job", "without-keeper", "--cascade=foreground")
    refused = terminal.call("resume", "without")
    assert refused.returncode == 115, refused.stderr
    assert "its keeper, which had its safe checkpoints, is gone" in refused.stderr
    assert terminal.call("rm", "--force", "without").returncode == 0
