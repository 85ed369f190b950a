"""A run's control group: where one can be made, and that nothing of the run outlives `stop` and `rm`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.engines.local import cgroups
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.folder.store import RunStore
from echelon.errors import StateTrouble
from echelon.model.run import RunRef

PURE = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
OLD = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
CONTAINER = "612 611 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
BLANK = "30 23 0:26 / /mnt/a\\040b\\134c rw - cgroup2 none rw\n"


@pytest.mark.parametrize(
    ("mountinfo", "membership", "folder"),
    [
        (PURE, "0::/user.slice/app.scope\n", "/sys/fs/cgroup/user.slice/app.scope"),
        (PURE, "0::/\n", "/sys/fs/cgroup"),
        (HYBRID, "4:memory:/x\n0::/\n", "/sys/fs/cgroup/unified"),
        (OLD, "4:memory:/x\n", None),
        (OLD, "0::/x\n", None),
        (PURE, "4:memory:/x\n", None),
        (CONTAINER, "0::/docker/abc\n", "/sys/fs/cgroup"),
        (CONTAINER, "0::/docker/abc/inner\n", "/sys/fs/cgroup/inner"),
        (CONTAINER, "0::/docker/abcd\n", None),
        (CONTAINER, "0::/\n", None),
        (PURE, "0::/../../elsewhere\n", None),
        (BLANK, "0::/x\n", "/mnt/a b\\c/x"),
        ("", "", None),
        ("not - cgroup2\n", "0::/\n", None),
    ],
)
def test_where_a_process_is(mountinfo: str, membership: str, folder: str | None) -> None:
    assert cgroups.own_group(mountinfo, membership) == (Path(folder) if folder else None)


def test_the_group_of_another_run_is_not_taken_for_ours() -> None:
    run, top = Path("/state/runs/fm"), Path("/sys/fs/cgroup/unified")
    mine = top / f"{cgroups._prefix(run)}0123456789abcdef"
    assert cgroups.is_of(run, mine, HYBRID)
    assert not cgroups.is_of(Path("/state/runs/copied"), mine, HYBRID)
    assert not cgroups.is_of(run, Path("/tmp") / mine.name, HYBRID)
    assert not cgroups.is_of(run, top / ".." / mine.name, HYBRID)
    assert not cgroups.is_of(run, top, HYBRID)
    assert not cgroups.is_of(run, mine, OLD)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    """Where a group can be made for the run in `tmp_path`."""
    found = cgroups.choose(tmp_path)
    code = (
        "import sys, pathlib; from echelon.engines.local import cgroups as c; g = pathlib.Path(sys.argv[1])\n"
    )
    code += "sys.exit(not c.enter(g))"
    if found is None or subprocess.run([sys.executable, "-c", code, str(found)], check=False).returncode:
        pytest.skip("no control group can be made here")
    yield found
    assert cgroups.end(tmp_path, found) == []


def put_into(group: Path, *command: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command)
    (group / "cgroup.procs").write_text(str(process.pid))
    return process


def test_all_of_it_ends_and_nothing_else(tmp_path: Path, group: Path) -> None:
    below = group / "below"
    below.mkdir()
    inside = [put_into(group, "sleep", "600"), put_into(below, "sleep", "600")]
    outside = subprocess.Popen(["sleep", "600"])
    try:
        assert sorted(cgroups.members(group)) == sorted(each.pid for each in inside)
        assert cgroups.end(tmp_path / "another", group) == []  # it is not that run's
        assert all(each.poll() is None for each in inside)
        assert cgroups.end(tmp_path, group) == []
        assert [each.wait(PATIENCE) for each in inside] == [-signal.SIGKILL] * 2
        assert not group.exists()
        assert outside.poll() is None
    finally:
        for each in (outside, *inside):
            each.kill()
            each.wait()
    assert cgroups.end(tmp_path, group) == []


def test_a_kernel_that_cannot_kill_a_group(
    tmp_path: Path, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def refuse(path: Path, data: bytes) -> int:
        if path.name == "cgroup.kill":
            raise FileNotFoundError(path)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    inside = [put_into(group, "sleep", "600") for _ in range(3)]
    assert cgroups.end(tmp_path, group) == []
    assert [each.wait(PATIENCE) for each in inside] == [-signal.SIGKILL] * 3
    assert not group.exists()


def test_what_cannot_be_ended_is_named(tmp_path: Path, group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = put_into(group, "sleep", "600")
    with monkeypatch.context() as context:
        context.setattr(cgroups, "_PATIENCE", 0.0)
        context.setattr(cgroups, "_kill", lambda *_: None)
        assert cgroups.end(tmp_path, group) == [process.pid]
    assert cgroups.end(tmp_path, group) == []
    process.wait(PATIENCE)


ESCAPES = """
import os, subprocess, time
subprocess.run(["setsid", "-f", "env", "-i", "sh", "-c", f"echo $$ > {os.getcwd()}/away; exec sleep 9999"])
while not os.path.exists("away") or not open("away").read().endswith("\\n"):
    time.sleep(0.01)
open("ready", "w").close()
time.sleep(9999)
"""


@pytest.fixture
def escaped(home: Path, group: Path) -> Iterator[tuple[echelon.Run, RunDir, int]]:
    """A run whose supervisor and agent were killed, and a process of it that kept nothing by which it could
    be found but its control group.
    """
    Path("escape.py").write_text(ESCAPES)
    run = echelon.run("escape.py", name="fm")
    wait_until(Path("ready").exists, "the rank to start another process")
    folder, pid = RunStore(home).dir("fm"), int(Path("away").read_text())
    supervisor = json.loads(folder.supervisor.read_bytes())["pid"]
    events = LocalEngine(home).events(RunRef(engine="local", name="fm"))
    agents = [event.pid for event in events if event.kind == "worker-started" and event.pid]
    # Stopped first: who sees another die ends the rest in order.
    for order in (signal.SIGSTOP, signal.SIGKILL):
        for each in (supervisor, *agents):
            os.kill(each, order)
    wait_until(lambda: run.status().state == "lost", "the loss to be seen")
    try:
        yield run, folder, pid
    finally:
        if is_there(pid):
            os.kill(pid, signal.SIGKILL)


def is_there(pid: int) -> bool:
    """Whether the process sleeps on; one that nobody has reaped is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[:2] == [b"sleep", b"9999"]
    except OSError:
        return False


@pytest.mark.parametrize("way", ["stop", "rm", "wait", "resume"])
def test_nothing_outlives_the_next_command(
    escaped: tuple[echelon.Run, RunDir, int],
    cli: Callable[..., subprocess.CompletedProcess[str]],
    way: str,
) -> None:
    run, folder, pid = escaped
    group = Path(json.loads(folder.supervisor.read_bytes())["cgroup"])
    before = sorted(each.name for each in folder.path.iterdir())
    for look in ("ps", "status", "logs"):
        cli(look, *([] if look == "ps" else ["fm"]))
    assert is_there(pid)  # who looks ends nothing and writes nothing
    assert sorted(each.name for each in folder.path.iterdir()) == before
    if way == "resume":
        Path("escape.py").write_text("")
        assert run.resume().wait(PATIENCE).state == "succeeded"
    else:
        done = cli(way, "fm")
        assert done.returncode == (117 if way == "wait" else 0), done.stderr
    assert not is_there(pid)
    assert not group.exists()


def test_rm_says_what_it_could_not_end(
    escaped: tuple[echelon.Run, RunDir, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder, pid = escaped
    with monkeypatch.context() as context:
        context.setattr(cgroups, "_PATIENCE", 0.0)
        context.setattr(cgroups, "_kill", lambda *_: None)
        assert str(pid) in (run.stop() or "")
        with pytest.raises(StateTrouble, match=f"could not be ended: {pid}"):
            run.remove()
    assert folder.path.exists()  # and it can be said again
    run.remove()
    assert not is_there(pid)
    assert not folder.path.exists()


def test_a_run_leaves_no_group(home: Path, group: Path) -> None:
    Path("fine.py").write_text("print(open('/proc/self/cgroup').read())")
    run = echelon.run("fine.py", name="fm")
    assert run.wait(PATIENCE).state == "succeeded"
    own = Path(json.loads(RunStore(home).dir("fm").supervisor.read_bytes())["cgroup"])
    assert any(own.name in line.text for line in run.logs())
    wait_until(lambda: not own.exists(), "the supervisor to remove its group")
