"""GPUs that a worker's ranks see: asked of a stand-in for `nvidia-smi`, a program on the PATH that answers
from a file, since the machines that run the tests have no GPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.nvidia_smi import GIB, StandIn, uuid
from tests.conftest import PATIENCE

from echelon.agent.loop import Loop
from echelon.agent.ranks.usage import gpus
from echelon.agent.ranks.usage.gpus import Gpus, visible_gpus

ANSWER = (
    f"0, {uuid(0)}, NVIDIA H100, 81559, 1024, 97\n"
    f"1, {uuid(1)}, NVIDIA H100, 81559, 0, 0\n"
    f"2, {uuid(2)}, NVIDIA H100, 81559, 5, [N/A]\n"
)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("1", ["1"]),
        ("2,0", ["2", "0"]),
        (uuid(1)[:12], ["1"]),
        (f"{uuid(2)},0", ["2", "0"]),
        ("MIG-1234", ["0", "1", "2"]),
    ],
)
def test_which_gpus_ranks_see(visible: str | None, expected: list[str]) -> None:
    assert [each["gpu"] for each in visible_gpus(ANSWER, visible)] == expected


def test_what_is_told_of_a_gpu() -> None:
    first, _, last = visible_gpus(ANSWER, None)
    assert first == {"gpu": "0", "busy": 97, "memory_used": 1024 << 20, "memory": 81559 << 20}
    assert last["busy"] is None
    assert visible_gpus("No devices were found\n", None) == []


# The first is of a real H200 that does nothing, with driver 580; the others have fields as nvml.h has them.
CLOCKS = (
    f"0, {uuid(0)}, NVIDIA H200, 143771, 0, 0, 345, 1980, 33, 77.53, 700.00, 0x0000000000000001\n"
    f"1, {uuid(1)}, NVIDIA H200, 143771, 9, 99, 1095, 1980, 91, 402.10, 700.00, 0x0000000000000048\n"
    f"2, {uuid(2)}, Tesla K80, 11441, 9, 99, 562, 875, 60, [N/A], [Not Supported], [N/A]\n"
)


def test_clocks_and_what_slows_them_down() -> None:
    idle, hot, old = visible_gpus(CLOCKS, None)
    assert idle == {
        "gpu": "0",
        "busy": 0,
        "memory_used": 0,
        "memory": 143771 << 20,
        "clock": 345.0,
        "clock_most": 1980.0,
        "temperature": 33.0,
        "power": 77.53,
        "power_limit": 700.0,
        "slowed": [],
    }
    assert (hot["clock"], hot["temperature"], hot["slowed"]) == (1095.0, 91.0, ["HW thermal slowdown"])
    assert (old["clock"], old["power"], old["power_limit"], old["slowed"]) == (562.0, None, None, [])


@pytest.mark.parametrize(
    ("bits", "slowed"),
    [
        ("0x0000000000000000", []),
        ("0x0000000000000112", []),  # clocks that somebody has set, of a group, of a display
        ("0x0000000000000004", ["SW power cap"]),
        ("0x0000000000000008", ["HW slowdown"]),
        ("0x0000000000000088", ["HW power brake slowdown"]),
        ("0x0000000000000024", ["SW thermal slowdown", "SW power cap"]),
    ],
)
def test_bits_in_nvidia_smi_s_words(bits: str, slowed: list[str]) -> None:
    (gpu,) = visible_gpus(f"0, {uuid(0)}, NVIDIA H200, 1, 0, 0, 345, 1980, 33, 77.53, 700.00, {bits}\n", None)
    assert gpu["slowed"] == slowed


class Asking:
    """A loop with the children of an agent."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.children: dict[int, Callable[[int], object]] = {}
        self.loop.on_signal(signal.SIGCHLD, self._reap)

    def _reap(self) -> None:
        for pid in list(self.children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self.children.pop(pid)(os.waitstatus_to_exitcode(status))

    def until(self, done: Callable[[], object]) -> None:
        def look() -> None:
            if done():
                self.loop.stop()
            else:
                self.loop.call_later(0.01, look)

        self.loop.call_later(PATIENCE, self.loop.stop)
        self.loop.call_later(0, look)
        self.loop.run()


@pytest.fixture
def asking() -> Iterator[Asking]:
    before = signal.getsignal(signal.SIGCHLD)
    made = Asking()
    yield made
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, before)
    made.loop.close()


def test_it_is_asked_again_and_again(tmp_path: Path, asking: Asking) -> None:
    stand_in = StandIn(tmp_path / "bin")
    stand_in.show(2, used=[3 * GIB], busy=[50, 7])
    env = {**os.environ, "PATH": f"{stand_in.folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "1"}
    asked = Gpus(asking.loop, asking.children, env)
    asked.ask()
    asking.until(lambda: asked.newest)
    assert asked.newest == [{"gpu": "1", "busy": 7, "memory_used": 3 << 30, "memory": 80 << 30}]
    stand_in.show(2, busy=[0, 99])
    asked.ask()
    asked.ask()  # while an answer is waited for, nothing is asked
    assert len(asking.children) == 1
    asking.until(lambda: asked.newest[0]["busy"] == 99)
    assert asked.pids == frozenset()


def test_clocks_are_asked_for_first(tmp_path: Path, asking: Asking) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncase $1 in *clocks_throttle_reasons.active) echo '{CLOCKS.splitlines()[1]}';; esac\n"
    )
    program.chmod(0o755)
    asked = Gpus(asking.loop, asking.children, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    asked.ask()
    asking.until(lambda: asked.newest)
    assert asked.newest[0]["clock"] == 1095.0


@pytest.mark.parametrize("visible", ["", "-1"])
def test_ranks_without_gpus_ask_nothing(tmp_path: Path, asking: Asking, visible: str) -> None:
    stand_in = StandIn(tmp_path / "bin")
    stand_in.show(2)
    env = {"PATH": f"{stand_in.folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": visible}
    asked = Gpus(asking.loop, asking.children, env)
    asked.ask()
    assert asking.children == {}


def test_a_machine_without_the_program(tmp_path: Path, asking: Asking) -> None:
    asked = Gpus(asking.loop, asking.children, {"PATH": str(tmp_path)})
    asked.ask()
    assert (asking.children, asked.newest) == ({}, [])


def test_one_that_fails_is_not_asked_for_ever(tmp_path: Path, asking: Asking) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    asked = Gpus(asking.loop, asking.children, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    for _ in range(gpus.MOST_FAILURES):
        asked.ask()
        asking.until(lambda: not asking.children)
    asked.ask()
    assert asking.children == {}


def test_one_that_hangs_is_ended(tmp_path: Path, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "PATIENCE", 0.1)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    asked = Gpus(asking.loop, asking.children, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    asked.ask()
    asking.until(lambda: not asking.children)
    assert (asked.newest, asked.pids) == ([], frozenset())
