"""Faults while results come home: a pod is deleted, the time to linger is short, two clients fetch at once,
the API server is away when the run ends. Everything is at home, or the command says what is not, with its own
exit code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Command, Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Outage = tuple[Callable[[], None], Callable[[], None]]
INCOMPLETE, UNKNOWN = 123, 111
FILES, SIZE = 8, 12 << 20  # of each worker: more than comes in the time that a signal takes
WRITES = f"""
import os, time
folder = os.environ["ECHELON_OUTPUT"]
time.sleep(float(os.environ.get("PAUSE", "0")))
for number in range({FILES}):
    with open(f"{{folder}}/part-{{number}}", "wb") as file:
        for _ in range(int(os.environ.get("MIB", {SIZE} >> 20))):
            file.write(os.urandom(1 << 20))
os.symlink(f"{{folder}}/part-0", f"{{folder}}/latest")
os.mkfifo(f"{{folder}}/pipe")
print("written", flush=True)
"""


def arrived(folder: Path) -> int:
    """Bytes below a folder, of files that are still coming too."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it has just got its name
            total += path.lstat().st_size
    return total


def wait_for_bytes(command: Command, folder: Path, count: int = 10 << 20) -> None:
    def there() -> bool:
        assert command.process.poll() is None, command
        return arrived(folder) > count

    wait_until(there, f"{count} bytes in {folder}", PATIENCE)


@contextlib.contextmanager
def stopped(command: Command) -> Iterator[None]:
    """Let a command stand still."""
    os.kill(command.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(command.process.pid, signal.SIGCONT)


def check_complete(folder: Path, *, workers: int = 1, size: int = SIZE) -> None:
    for worker in range(workers):
        place = folder / f"worker-{worker}" if worker else folder
        sizes = {path.name: path.stat().st_size for path in place.glob("part-*")}
        assert sizes == {f"part-{number}": size for number in range(FILES)}, place
        assert str((place / "latest").readlink()) == "part-0"
    assert {path.name for path in (folder / "logs").iterdir()} == {
        f"rank-{rank}.log" for rank in range(workers)
    }


def test_a_pod_is_deleted_while_its_results_are_fetched(terminal: Terminal) -> None:
    terminal.write("writes.py", WRITES)
    command = terminal.train("evict", "writes.py")
    home = terminal.folder / "runs" / "evict"
    wait_for_bytes(command, home)
    with stopped(command):
        terminal.kubectl("delete", "pod", terminal.pods("evict")[-1]["metadata"]["name"], "--now")
    assert command.wait() == INCOMPLETE, command
    parts = {path.name for path in home.glob("part-*")}
    lacking = FILES - len(parts)
    assert lacking > 0, "it was faster than the deletion"
    assert "worker 0: " in command.said, command
    assert "not fetched: its pod" in command.said, command
    again = terminal.call("get", "evict")
    assert again.returncode == INCOMPLETE, again.stderr
    assert terminal.call("wait", "evict").returncode == INCOMPLETE
    assert terminal.status("evict")["state"] == "succeeded"
    terminal.check_removal("evict")


def test_one_of_two_workers_is_deleted_before_its_results_are_fetched(terminal: Terminal) -> None:
    """The other's come home, and it goes; what is missing is said by every command."""
    terminal.write("writes.py", WRITES)
    done = terminal.call(
        *("run", "-d", "--keep", "5m:0", "-n", "2"),
        *("--name", "shard", "--image", terminal.image, "writes.py"),
    )
    assert done.returncode == 0, done.stderr
    follower = terminal.start("logs", "-f", "shard")
    assert follower.wait() == 0, follower
    wait_until(lambda: terminal.status("shard")["state"] == "succeeded", "the end", PATIENCE)
    last = next(pod for pod in terminal.pods("shard") if pod["metadata"]["name"].startswith("shard-1-"))
    terminal.kubectl("delete", "pod", last["metadata"]["name"], "--now")
    waited = terminal.call("wait", "shard")
    assert waited.returncode == INCOMPLETE, waited.stderr
    assert f"worker 1: {FILES + 1} files, " in waited.stderr
    assert "not fetched: its pod" in waited.stderr
    assert "worker 0" not in waited.stderr
    home = terminal.folder / "runs" / "shard"
    assert len(list(home.glob("part-*"))) == FILES
    assert terminal.call("wait", "shard").returncode == INCOMPLETE
    terminal.check_removal("shard")


def test_the_fetch_takes_longer_than_the_workers_linger(terminal: Terminal) -> None:
    terminal.write("writes.py", WRITES)
    command = terminal.train("slow", "--keep", "20s", "-n", "2", "writes.py")
    home = terminal.folder / "runs" / "slow"
    wait_for_bytes(command, home)
    with stopped(command):
        time.sleep(30)  # longer than they linger
    assert command.wait() == 0, command
    check_complete(home, workers=2)
    assert "not copied: pipe: a pipe" in command.said
    assert "not copied: worker-1/pipe: a pipe" in command.said
    terminal.check_removal("slow")


def test_two_clients_at_once_both_end_with_everything(terminal: Terminal, tmp_path: Path) -> None:
    """A colleague copies while the submitter collects, and releases the workers."""
    terminal.write("writes.py", WRITES)
    command = terminal.train("both", "-n", "2", "writes.py")
    home = terminal.folder / "runs" / "both"
    wait_for_bytes(command, home)
    colleague = terminal.on_another_machine(terminal.kubectl, tmp_path / "colleague")
    copy = tmp_path / "copy"
    with stopped(command):
        other = colleague.start(
            "get", "both", "--to", str(copy), "--namespace", str(terminal.kubectl.namespace)
        )
        wait_for_bytes(other, copy)
    with stopped(other):
        assert command.wait() == 0, command
        check_complete(home, workers=2)
    assert other.wait() == 0, other
    check_complete(copy, workers=2)
    terminal.check_removal("both")


def test_two_commands_of_the_submitter_at_once(terminal: Terminal) -> None:
    """Both into the same folder: whichever is the first to have all of it releases the workers."""
    terminal.write("writes.py", WRITES)
    command = terminal.train("twice", "-n", "2", "writes.py")
    home = terminal.folder / "runs" / "twice"
    wait_for_bytes(command, home)
    with stopped(command):
        other = terminal.start("get", "twice")
        wait_until((home / "worker-1").exists, "the second one to be at worker 1", PATIENCE)
    assert command.wait() == 0, command
    assert other.wait() == 0, other
    check_complete(home, workers=2)
    terminal.check_removal("twice")


def test_the_run_ends_while_the_api_server_is_away(terminal: Terminal, api_outage: Outage) -> None:
    """For a part of the time for which its workers hold."""
    stop, start = api_outage
    terminal.write("writes.py", 'print("began", flush=True)\n' + WRITES)
    few = ("--env", "PAUSE=3", "--env", "MIB=1")
    command = terminal.train("away", *few, "-n", "2", "writes.py")
    command.wait_for("began", 2)
    stop()
    time.sleep(40)
    start()
    assert command.wait(600) == 0, command
    check_complete(terminal.folder / "runs" / "away", workers=2, size=1 << 20)
    assert terminal.status("away")["state"] == "succeeded"
    # The controllers, too, were without the API server, and release pods only when they lead again.
    wait_until(lambda: terminal.call("rm", "away").returncode in (0, UNKNOWN), "it to be removed", PATIENCE)
    terminal.wait_for_nothing("away")


SAVES = """
import os, time
try:
    print("up", flush=True)
    while True:
        time.sleep(0.1)
except KeyboardInterrupt:
    with open(os.environ["ECHELON_OUTPUT"] + "/saved", "w") as file:
        file.write("by " + os.environ["ECHELON_RANK"])
"""


def test_what_ranks_save_at_ctrl_c_comes_home(terminal: Terminal) -> None:
    terminal.write("saves.py", SAVES)
    command = terminal.train("mine", "-n", "2", "saves.py")
    command.wait_for("up\n", 2)
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 130, command
    assert terminal.read("mine", "saved") == "by 0"
    assert terminal.read("mine", "worker-1/saved") == "by 1"
    assert terminal.status("mine")["state"] == "stopped"
    terminal.check_removal("mine")
