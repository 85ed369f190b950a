"""Runs that share a machine's GPUs without ever sharing one; the GPUs are imagined, all else is real."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Background, wait_for
from tests.cli.nvidia_smi import GIB, StandIn, uuid
from tests.conftest import wait_until

from echelon.engines.local.folder.store import RunStore

Call = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Background]
HOLD = """
    import json, os, pathlib, time
    name, worker = os.environ["ECHELON_RUN"], os.environ["ECHELON_WORKER"]
    gpus = os.environ["CUDA_VISIBLE_DEVICES"]
    order = os.environ["CUDA_DEVICE_ORDER"]
    start = time.time()
    holds = pathlib.Path(f"holds-{name}-{worker}")
    whole = holds.with_suffix(f".{os.environ['ECHELON_RANK']}.tmp")  # who waits for it finds all of it
    whole.write_text(gpus)
    whole.rename(holds)
    while not (pathlib.Path(f"go-{name}").exists() or pathlib.Path("go").exists()):
        time.sleep(0.02)
    time.sleep(0.1)
    entry = {"run": name, "gpus": gpus.split(","), "start": start, "end": time.time(), "order": order}
    pathlib.Path(f"held-{name}-{worker}-{os.environ['ECHELON_RANK']}").write_text(json.dumps(entry))
"""


@dataclass(frozen=True)
class Held:
    """One rank had these GPUs from then to then."""

    run: str
    gpus: list[str]
    start: float
    end: float
    order: str


@pytest.fixture
def hold(write: Callable[..., Path]) -> str:
    """A script that says which GPUs it was given and keeps them until told: `go`, or `go-RUN`."""
    return str(write("hold.py", HOLD))


@pytest.fixture
def status(call: Call) -> Callable[[str], dict[str, Any]]:
    def status(name: str) -> dict[str, Any]:
        done = call("status", name, "-o", "json")
        if done.returncode != 0:
            return {"state": f"not there: exit code {done.returncode}"}
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return status


Status = Callable[[str], dict[str, Any]]


def wait_for_state(status: Status, name: str, state: str) -> dict[str, Any]:
    wait_until(lambda: status(name)["state"] == state, f"{name} to be {state}")
    return status(name)


def admitted_at(home: Path, name: str) -> float:
    lines = RunStore(home).dir(name).events.read_bytes().splitlines()
    events = [json.loads(line) for line in lines]
    return float(next(event["at"] for event in events if event["kind"] == "admitted"))


@pytest.mark.slow
def test_many_runs_at_once_never_share_a_gpu(gpus: StandIn, background: Start, call: Call, hold: str) -> None:
    gpus.show(4)
    Path("go").touch()
    wanted = [(1, 1), (1, 2), (2, 1), (1, 1), (1, 3), (2, 2), (1, 1), (1, 1)]  # workers, GPUs each
    started = [
        background(
            "run", "-d", "--name", f"r{number}", "-n", str(workers), "--gpus", str(each), "--procs", "1", hold
        )
        for number, (workers, each) in enumerate(wanted)
    ]
    assert [each.end() for each in started] == [0] * len(wanted), [each.err for each in started]
    for number in range(len(wanted)):
        assert call("wait", f"r{number}").returncode == 0
    held = [Held(**json.loads(path.read_text())) for path in Path.cwd().glob("held-*")]
    assert len(held) == sum(workers for workers, _ in wanted)
    for number, (workers, each) in enumerate(wanted):
        mine = [gpu for entry in held if entry.run == f"r{number}" for gpu in entry.gpus]
        assert len(mine) == len(set(mine)) == workers * each
        assert set(mine) <= {"0", "1", "2", "3"}
    for one, two in itertools.combinations(held, 2):
        if one.start < two.end and two.start < one.end:
            assert not set(one.gpus) & set(two.gpus), (one, two)
    assert {entry.order for entry in held} == {"PCI_BUS_ID"}


def test_each_rank_of_a_worker_sees_the_workers_gpus(
    gpus: StandIn, call: Call, hold: str, status: Status
) -> None:
    gpus.show(4)
    Path("go").touch()
    assert call("run", "-n", "2", "--gpus", "2", "--name", "fm", hold).returncode == 0
    held = [Held(**json.loads(path.read_text())) for path in sorted(Path.cwd().glob("held-fm-*"))]
    assert [entry.gpus for entry in held] == [
        ["0", "1"],
        ["0", "1"],
        ["2", "3"],
        ["2", "3"],
    ]  # a rank per GPU
    assert [worker["gpus"] for worker in status("fm")["workers"]] == [["0", "1"], ["2", "3"]]


@pytest.mark.slow
def test_a_run_waits_in_line_says_why_and_is_served_in_order(
    gpus: StandIn, call: Call, hold: str, status: Status, background: Start, home: Path
) -> None:
    gpus.show(2)
    assert call("run", "-d", "--name", "a", "--gpus", "1", hold).returncode == 0
    wait_for("holds-a-0")
    waiting = background("run", "--name", "b", "--gpus", "2", hold)
    wait_for_state(status, "b", "queued")
    assert call("run", "-d", "--name", "c", "--gpus", "1", hold).stdout == "c\n"
    assert status("b")["reason"] == "waiting for 2 GPUs: 1 of 2 free, held by a"
    assert wait_for_state(status, "c", "queued")["reason"] == "queued behind b"  # though one is free
    assert "waiting for 2 GPUs: 1 of 2 free, held by a" in call("ps").stdout
    told = "echelon: waiting for 2 GPUs: 1 of 2 free, held by a\n"
    wait_until(lambda: told in waiting.err, "the reason to be told")
    preview = call("run", "--dry-run", "--gpus", "1", hold)
    assert "it would wait: queued behind b and 1 more" in preview.stderr
    assert call("run", "--name", "d", "--", "true").returncode == 0  # who wants no GPU does not wait for one
    Path("go-a").touch()
    wait_for("holds-b-0")
    assert sorted(Path("holds-b-0").read_text().split(",")) == ["0", "1"]
    assert wait_for_state(status, "c", "queued")["workers"] == []
    Path("go-b").touch()
    wait_for("holds-c-0")
    assert waiting.end() == 0
    assert "echelon: starting\n" in waiting.err
    Path("go-c").touch()
    assert call("wait", "c").returncode == 0
    assert admitted_at(home, "b") < admitted_at(home, "c")


def test_a_run_in_line_can_be_stopped(
    gpus: StandIn, call: Call, hold: str, status: Status, background: Start
) -> None:
    gpus.show(1)
    gpus.compute((0, os.getpid(), "/usr/bin/somebody"))
    assert call("run", "-d", "--name", "a", "--gpus", "1", hold).returncode == 0
    waiting = background("run", "--name", "b", "--gpus", "1", hold)
    wait_for_state(status, "b", "queued")
    wait_until(lambda: "waiting" in waiting.err, "the reason to be told")
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.end() == 130
    assert status("b")["state"] == "stopped"
    assert call("stop", "a").stdout.startswith("a stopped")
    assert call("rm", "a", "b").returncode == 0
    assert not Path("runs/a").exists()  # it never began to write


def test_gpus_of_other_peoples_processes_are_not_taken(
    gpus: StandIn, call: Call, hold: str, status: Status
) -> None:
    gpus.show(3, used=(0, 0, 40 * GIB))  # the third is used by a process that cannot be seen from here
    gpus.compute((0, os.getpid(), "/opt/conda/bin/python"))
    Path("go").touch()
    assert call("run", "--name", "a", "--gpus", "1", hold).returncode == 0
    assert Path("holds-a-0").read_text() == "1"
    refused = call("run", "--name", "b", "--gpus", "2", "--no-wait", hold)
    assert refused.returncode == 114
    assert f"1 of 3 free, held by an unknown process, python (pid {os.getpid()})" in refused.stderr
    assert "hint: leave --no-wait out to wait in the queue" in refused.stderr
    assert call("status", "b").returncode == 111
    assert not Path("runs/b").exists()
    assert call("run", "-d", "--name", "b", "--gpus", "2", hold).returncode == 0
    wait_for_state(status, "b", "queued")
    gpus.compute()  # that process has ended
    assert call("wait", "b").returncode == 0
    assert Path("holds-b-0").read_text() == "0,1"


@pytest.mark.slow
def test_who_does_not_wait_is_refused_even_when_late_by_a_moment(
    gpus: StandIn, background: Start, call: Call, hold: str
) -> None:
    gpus.show(1)
    started = [background("run", "-d", "--name", f"r{n}", "--gpus", "1", "--no-wait", hold) for n in range(4)]
    assert sorted(each.end() for each in started) == [0, 114, 114, 114]
    assert len(json.loads(call("ps", "-a", "-o", "json").stdout)) == 1


@pytest.mark.parametrize(
    ("visible", "given"),
    [("2,3", "2,3"), (f"{uuid(3)},1", "3,1"), ("3, 2", "3,2"), ("2,3,9,0", "2,3")],
)
def test_an_outer_choice_is_respected(
    gpus: StandIn, call: Call, hold: str, monkeypatch: pytest.MonkeyPatch, visible: str, given: str
) -> None:
    gpus.show(4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    Path("go").touch()
    assert call("run", "--name", "fm", "--gpus", "2", hold).returncode == 0
    assert Path("holds-fm-0").read_text() == given
    too_many = call("run", "--gpus", "3", hold)
    assert too_many.returncode == 113
    assert "3 GPUs asked for, this machine has 2" in too_many.stderr


def test_without_gpus_an_outer_choice_is_left_alone(
    gpus: StandIn, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.show(4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert call("run", "--", "printenv", "CUDA_VISIBLE_DEVICES").stdout == "2,3\n"


def test_larger_than_the_machine(gpus: StandIn, call: Call, hold: str, home: Path) -> None:
    gpus.show(4, models=("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe"))
    for words, said in (
        (["--gpus", "5"], "5 GPUs asked for, this machine has 4"),
        (["-n", "3", "--gpus", "2"], "6 GPUs asked for, this machine has 4"),
        (["--gpus", "1", "--gpu-type", "V100"], "gpu_type 'V100': this machine has no such GPU"),
        (["--gpus", "3", "--gpu-type", "a100"], "a100"),
    ):
        refused = call("run", *words, hold)
        assert refused.returncode == 113
        assert said in refused.stderr
        assert "hint: " in refused.stderr
    assert not (home / "runs").exists()


def test_gpus_of_one_model(gpus: StandIn, call: Call, hold: str) -> None:
    gpus.show(4, models=("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe"))
    Path("go").touch()
    assert call("run", "--name", "fm", "--gpus", "2", "--gpu-type", "h100", hold).returncode == 0
    assert Path("holds-fm-0").read_text() == "1,3"


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_gpus_are_free_again_however_the_run_ends(
    gpus: StandIn, call: Call, hold: str, home: Path, ending: str
) -> None:
    gpus.show(1)
    assert call("run", "-d", "--name", "a", "--gpus", "1", hold).returncode == 0
    wait_for("holds-a-0")
    assert call("run", "--gpus", "1", "--no-wait", hold).returncode == 114
    if ending == "stop":
        assert call("stop", "--now", "a").returncode == 0
    else:
        supervisor = json.loads(RunStore(home).dir("a").supervisor.read_bytes())["pid"]
        os.kill(supervisor, signal.SIGKILL)
        assert call("wait", "a").returncode == 117
    Path("go").touch()
    assert call("run", "--name", "b", "--gpus", "1", "--no-wait", hold).returncode == 0


def test_top_shows_who_has_which_gpu(gpus: StandIn, call: Call, hold: str) -> None:
    gpus.show(3, used=(0, 2 * GIB, 0))
    gpus.compute((1, os.getpid(), "/usr/bin/blender"))
    assert call("run", "-d", "--name", "fm", "--gpus", "1", hold).returncode == 0
    wait_for("holds-fm-0")
    usage = json.loads(call("top", "-o", "json").stdout)
    assert [use["user"] for use in usage["gpus"]] == ["fm", f"blender (pid {os.getpid()})", None]
    assert usage["gpus"][1]["used"] == 2 * 2**30
    assert [use["gpus"] for use in usage["runs"]] == [["0"]]
    text = call("top").stdout
    assert re.search(r"^0 +NVIDIA Imagined +0 B of 80 GiB +0 % +fm$", text, re.MULTILINE)
    assert re.search(r"^2 +NVIDIA Imagined +0 B of 80 GiB +0 % +free$", text, re.MULTILINE)
    assert re.search(r"^ok +GPUs +3: NVIDIA Imagined$", call("doctor").stdout, re.MULTILINE)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_queued_run_in_the_foreground_keeps_the_input_for_a_single_rank(
    gpus: StandIn, call: Call, hold: str, status: Status, background: Start, workers: int
) -> None:
    """When its supervisor starts, a queued run has no plan yet: whether a rank gets the input shows later."""
    gpus.show(workers)
    assert call("run", "-d", "--name", "first", "--gpus", str(workers), "--procs", "1", hold).returncode == 0
    wait_for("holds-first-0")
    reading, writing = os.pipe()
    words = ("run", "--name", "second", "-n", str(workers), "--gpus", "1", "--framework", "plain")
    second = background(*words, "--", "cat", stdin=reading)
    os.close(reading)
    wait_for_state(status, "second", "queued")
    Path("go").touch()
    if workers == 1:
        os.write(writing, b"from the terminal\n")
        wait_until(lambda: second.out == "from the terminal\n", "the input to come back")
    else:
        wait_until(lambda: second.process.poll() is not None, "ranks without input to end by themselves")
    os.close(writing)
    assert second.end() == 0, second.err


STEADY = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_run_whose_size_changes_fills_the_machine_and_makes_way(
    gpus: StandIn, call: Call, hold: str, status: Status, write: Callable[..., Path]
) -> None:
    def wait_for_members(*members: int) -> dict[str, Any]:
        wait_until(lambda: status("filler")["members"] == list(members), f"{members} to take part", 60.0)
        return status("filler")

    gpus.show(3)
    gpus.compute((2, os.getpid(), "/usr/bin/somebody"))
    steady = str(write("steady.py", STEADY))
    asked = ("-n", "1..3", "--gpus", "1", "--settle", "0.5s")
    assert call("run", "-d", "--name", "filler", *asked, steady).returncode == 0
    assert [each["gpus"] for each in wait_for_members(0, 1)["workers"]] == [["0"], ["1"], []]
    gpus.compute()
    assert [each["gpus"] for each in wait_for_members(0, 1, 2)["workers"]] == [["0"], ["1"], ["2"]]
    assert "3 of 1..3" in call("ps").stdout

    assert call("run", "-d", "--name", "equal", "--gpus", "2", hold).returncode == 0
    assert call("run", "-d", "--name", "urgent", "--priority", "5", "--gpus", "2", hold).returncode == 0
    wait_until(Path("holds-urgent-0").exists, "the urgent run to start", 60.0)
    assert sorted(Path("holds-urgent-0").read_text().split(",")) == ["1", "2"]
    assert [each["gpus"] for each in wait_for_members(0)["workers"]] == [["0"], [], []]
    assert status("equal")["state"] == "queued"  # nothing is given back to it

    Path("go-urgent").touch()
    wait_until(Path("holds-equal-0").exists, "the run that has waited to start", 60.0)
    assert status("filler")["members"] == [0]
    Path("go-equal").touch()
    assert [each["gpus"] for each in wait_for_members(0, 1, 2)["workers"]] == [["0"], ["1"], ["2"]]
    found = status("filler")
    assert found["restarts"] == found["restarts_spared"] > 0
    told = [each for each in call("events", "filler").stdout.splitlines() if "urgent" in each]
    assert len(told) == 1
    assert "workers 1, 2 must leave: run 'urgent' has a higher priority" in told[0]
    assert call("stop", "filler").returncode == 0
