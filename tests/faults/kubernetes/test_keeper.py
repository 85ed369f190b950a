"""The keeper of a run: workers leave when it has their results, whatever becomes of their pods afterwards;
what is lost with the keeper is said, and where there is none, results are held by the workers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Terminal, flag_path

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

INCOMPLETE = 123
WRITES = """
import os, pathlib, sys
output = pathlib.Path(os.environ["ECHELON_OUTPUT"])
(output / "deep").mkdir()
for number in range(3):
    (output / "deep" / f"part-{number}").write_bytes(bytes([number]) * 100_000)
(output / "latest").symlink_to(output / "deep" / "part-0")
os.mkfifo(output / "pipe")
print("written by", os.environ["RANK"] if "RANK" in os.environ else os.environ["ECHELON_WORKER"], flush=True)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


def keepers(terminal: Terminal, run: str) -> list[dict[str, Any]]:
    chosen = f"echelon.dev/run={run},app.kubernetes.io/component=keeper"
    return terminal.kubectl.items("pods", "-l", chosen)


def running(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def submit(terminal: Terminal, name: str, *words: str) -> None:
    terminal.write("writes.py", WRITES)
    size = () if "--keep" in words else ("--keep", "24h:100Mi")
    done = terminal.call("run", "-d", "--name", name, "--image", terminal.image, *size, *words)
    assert done.returncode == 0, done.stderr


def wait_for_keeper(terminal: Terminal, run: str) -> None:
    """The workers have gone, in order, and the keeper is there."""

    def gone() -> bool:
        found = terminal.pods(run)
        return bool(found) and not running(found)

    wait_until(gone, "the workers to leave", PATIENCE)
    assert len(running(keepers(terminal, run))) == 1


def check_home(folder: Path, *, workers: int) -> None:
    for worker in range(workers):
        place = folder / f"worker-{worker}" if worker else folder
        for number in range(3):
            assert (place / "deep" / f"part-{number}").read_bytes() == bytes([number]) * 100_000
        assert (place / "latest").readlink() == Path("deep/part-0")
        assert (folder / "logs" / f"rank-{worker}.log").read_text() == f"written by {worker}\n"


def test_a_detached_run_with_gpus_needs_no_flag(
    terminal: Terminal, give_gpus: Callable[..., None], real_nodes: list[str], tmp_path: Path
) -> None:
    """GPUs are free as soon as the keeper has all; everything can be had later, though the pods are gone."""
    give_gpus(real_nodes[0], 2)
    submit(terminal, "left", "-n", "2", "--gpus", "1", "writes.py")
    wait_for_keeper(terminal, "left")
    assert not [
        pod
        for pod in keepers(terminal, "left")
        if "nvidia.com/gpu" in json.dumps(pod["spec"]["containers"][0]["resources"])
    ]
    status = terminal.status("left")
    assert (status["state"], status["kept"]) == ("succeeded", [0, 1])
    assert status["held_until"] is None
    terminal.kubectl(
        "delete", "pods", "--now", "-l", "echelon.dev/run=left,app.kubernetes.io/component=worker"
    )
    assert terminal.call("rm", "left").returncode != 0, "nothing was fetched yet"
    copy = tmp_path / "copy"
    copied = terminal.call("get", "left", "--to", str(copy))
    assert copied.returncode == 0, copied.stderr
    assert "pipe: a pipe" in copied.stderr
    check_home(copy, workers=2)
    shown = terminal.call("logs", "left")
    assert sorted(line.rpartition("written by ")[2] for line in shown.stdout.splitlines()) == ["0", "1"]
    assert terminal.call("logs", "-f", "left").stdout == shown.stdout
    waited = terminal.call("wait", "left")
    assert waited.returncode == 0, waited.stderr
    check_home(terminal.folder / "runs" / "left", workers=2)
    wait_until(lambda: not running(keepers(terminal, "left")), "the keeper to leave", PATIENCE)
    terminal.check_removal("left")


def test_the_keeper_knows_how_a_failed_run_ended(terminal: Terminal) -> None:
    submit(terminal, "fails", "writes.py", "7")
    wait_for_keeper(terminal, "fails")
    terminal.kubectl(
        "delete", "pods", "--now", "-l", "echelon.dev/run=fails,app.kubernetes.io/component=worker"
    )
    status = terminal.status("fails")
    assert (status["state"], status["exit_code"]) == ("failed", 7)
    waited = terminal.call("wait", "fails")
    assert waited.returncode == 7, waited.stderr
    check_home(terminal.folder / "runs" / "fails", workers=1)
    terminal.check_removal("fails")


def test_a_keeper_that_is_lost_with_the_results(terminal: Terminal) -> None:
    submit(terminal, "gone", "-n", "2", "writes.py")
    wait_for_keeper(terminal, "gone")
    terminal.kubectl("delete", "job", "gone-keeper")
    wait_until(lambda: not keepers(terminal, "gone"), "the keeper's end", PATIENCE)
    waited = terminal.call("wait", "gone")
    assert waited.returncode == INCOMPLETE, waited.stderr
    for worker in range(2):
        assert f"worker {worker}: 4 files" in waited.stderr
    assert "with the keeper, and the keeper is gone" in waited.stderr
    assert terminal.call("get", "gone").returncode == INCOMPLETE
    terminal.check_removal("gone")


def test_without_its_keeper_workers_hold_their_results(terminal: Terminal) -> None:
    """It is deleted while the run goes on, and nobody misses it; the results come from the workers."""
    waits = f"import os, time\nwhile not os.path.exists('{flag_path('go')}'): time.sleep(0.1)\n"
    terminal.write("writes.py", waits + WRITES)
    done = terminal.call("run", "-d", "--name", "alone", "--image", terminal.image, "writes.py")
    assert done.returncode == 0, done.stderr
    terminal.kubectl("delete", "job", "alone-keeper")
    wait_until(lambda: not keepers(terminal, "alone"), "the keeper's end", PATIENCE)
    wait_until(lambda: _phases(terminal, "alone") == ["Running"], "the worker", PATIENCE)
    terminal.raise_flag(terminal.pods("alone")[0]["metadata"]["name"], "go")
    wait_until(lambda: terminal.status("alone")["state"] == "succeeded", "the end", PATIENCE)
    wait_until(lambda: terminal.status("alone")["held_why"], "the reason", PATIENCE)
    status = terminal.status("alone")
    assert status["held_until"] is not None
    assert "the run's keeper is not there" in status["held_why"]
    assert status["restarts"] == 0
    got = terminal.call("get", "alone")
    assert got.returncode == 0, got.stderr
    check_home(terminal.folder / "runs" / "alone", workers=1)
    terminal.check_removal("alone")


def _phases(terminal: Terminal, run: str) -> list[str]:
    return [pod["status"]["phase"] for pod in terminal.pods(run)]


def test_a_keeper_for_which_there_is_no_room(terminal: Terminal) -> None:
    """It never starts; the run takes no notice, and nothing of it is left."""
    submit(terminal, "crowded", "--keep", "24h:1000Ti", "writes.py")
    wait_until(lambda: terminal.status("crowded")["held_why"], "the reason", PATIENCE)
    status = terminal.status("crowded")
    assert status["state"] == "succeeded"
    assert "the run's keeper is not there" in status["held_why"]
    waited = terminal.call("wait", "crowded")
    assert waited.returncode == 0, waited.stderr
    check_home(terminal.folder / "runs" / "crowded", workers=1)
    wait_until(lambda: not running(keepers(terminal, "crowded")), "the keeper to be given up", PATIENCE)
    terminal.check_removal("crowded")


def test_a_run_in_the_foreground(
    terminal: Terminal, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    """It fetches while its workers hand over and leave."""
    give_gpus(real_nodes[0], 2)
    large = "(output / 'large').write_bytes(bytes(50_000_000))\nsys.exit("
    terminal.write("writes.py", WRITES.replace("sys.exit(", large))
    command = terminal.train("stays", "-n", "2", "--gpus", "1", "--keep", "24h:1Gi", "writes.py")
    assert command.wait() == 0, command
    home = terminal.folder / "runs" / "stays"
    check_home(home, workers=2)
    assert (home / "worker-1" / "large").stat().st_size == 50_000_000
    assert "not copied: pipe: a pipe" in command.said
    wait_until(
        lambda: not running([*terminal.pods("stays"), *keepers(terminal, "stays")]), "all to leave", PATIENCE
    )
    terminal.check_removal("stays")


@pytest.mark.core
def test_a_namespace_of_the_level_restricted(terminal: Terminal) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    terminal.kubectl("label", "namespace", str(terminal.kubectl.namespace), label)
    submit(terminal, "strict", "writes.py")
    wait_for_keeper(terminal, "strict")
    waited = terminal.call("wait", "strict")
    assert waited.returncode == 0, waited.stderr
    check_home(terminal.folder / "runs" / "strict", workers=1)
    terminal.check_removal("strict")


def test_results_that_the_keeper_cannot_take(terminal: Terminal) -> None:
    submit(terminal, "large", "--keep", "24h:200Ki", "writes.py")
    wait_until(lambda: terminal.status("large").get("held_why"), "the reason", PATIENCE)
    assert "--keep TIME:SIZE" in terminal.status("large")["held_why"]
    shown = terminal.call("status", "large").stdout
    assert "more than fits into the keeper (--keep TIME:SIZE)" in shown
    assert len(running(terminal.pods("large"))) == 1
    waited = terminal.call("wait", "large")
    assert waited.returncode == 0, waited.stderr
    check_home(terminal.folder / "runs" / "large", workers=1)
    terminal.check_removal("large")
