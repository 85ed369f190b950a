"""How much a machine can be asked for at once: many runs, and many workers whose output many commands follow.

Nothing may be lost or repeated, and memory stays below what docs/reliability.md states; times are printed and
not judged, since they say more about the machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.agent.keepers import RunKeeper
from tests.agent.pods import Pods, pods_here
from tests.cli.test_many_events import MEASURED
from tests.conftest import PATIENCE, processes_of, wait_until

import echelon
from echelon.agent.keep import entries, exchange
from echelon.agent.keep.room import MOST_FILES, PER_FILE
from echelon.engines.kubernetes.render.keeper import _MOST_MEMORY
from echelon.model.resources import parse_size
from echelon.model.status import FINAL

PER_RUN = 60e6  # bytes of a run of one small rank: supervisor, agent and rank together
PER_FOLLOWER = 100e6
PER_WORKER = 40e6  # bytes of a worker of a large run: agent and rank
PER_KEEPER = 128e6  # bytes of a keeper that takes checkpoints of 16 workers at a time
LINES = 200
WAITS = "while [ ! -e go ]; do sleep 1; done"
TALKS = f"""
import os, time
from pathlib import Path
while not Path("go").exists():
    time.sleep(0.1)
for number in range({LINES}):
    print("line", number, flush=True)
"""


@pytest.fixture
def pods() -> Iterator[Pods]:
    with pods_here() as made:
        yield made


def memory_of(pids: list[int]) -> float:
    """The bytes that processes use, what they share counted once."""
    total = 0
    for pid in pids:
        try:
            found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        except OSError:
            continue  # it has ended
        total += int(found[1]) if found else 0
    return 1024.0 * total


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_many_runs_at_once(home: Path, count: int) -> None:
    began = time.monotonic()
    runs = [echelon.run(command=["sh", "-c", WAITS], name=f"run-{number}") for number in range(count)]
    submitted = time.monotonic() - began

    def all_run() -> bool:
        return all(row.state == "running" for row in echelon.runs())

    wait_until(all_run, "all of them to run", 10 * count)
    running = time.monotonic() - began
    used = memory_of(processes_of(home))
    looked = time.monotonic()
    assert len(echelon.runs()) == count
    looked = time.monotonic() - looked
    Path("go").touch()
    wait_until(lambda: all(row.state in FINAL for row in echelon.runs()), "their ends", 10 * count)
    print(
        f"\n{count} runs: submitted in {submitted:.1f} s, running after {running:.1f} s, "
        f"{used / count / 1e6:.1f} MB each, listed in {looked:.2f} s"
    )
    assert [run.status().state for run in runs] == ["succeeded"] * count
    assert used < count * PER_RUN


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "followers"), [(6, 4), pytest.param(64, 32, marks=pytest.mark.soak)])
def test_many_workers_with_many_followers(home: Path, workers: int, followers: int) -> None:
    Path("talks.py").write_text(TALKS)
    run = echelon.run("talks.py", workers=workers, name="many")
    wait_until(lambda: run.status().state == "running", "all workers to run", 10 * workers)
    used = memory_of(processes_of(home))
    command = [sys.executable, "-c", MEASURED, "logs", "-f", "many"]
    paths = [Path(f"follower-{number}") for number in range(followers)]
    began = time.monotonic()
    processes = []
    for path in paths:
        with path.open("wb") as out:
            processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True))
    Path("go").touch()
    assert run.wait(10 * PATIENCE).state == "succeeded"
    peaks = []
    for process in processes:
        said = process.communicate()[1]
        peaks.append(1024.0 * int(said.splitlines()[-1]))
    print(
        f"\n{workers} workers: {used / workers / 1e6:.1f} MB each; {followers} followers: "
        f"{max(peaks) / 1e6:.1f} MB at most, done after {time.monotonic() - began:.1f} s"
    )
    assert [process.returncode for process in processes] == [0] * followers
    for path in paths:
        seen: dict[str, list[str]] = {}
        for line in path.read_text().splitlines():
            rank, _, text = line.partition(" ")
            seen.setdefault(rank, []).append(text)
        assert len(seen) == workers
        assert all(lines == [f"line {number}" for number in range(LINES)] for lines in seen.values())
    assert used < workers * PER_WORKER
    assert max(peaks) < PER_FOLLOWER


@pytest.mark.slow
@pytest.mark.parametrize("size", [8 << 20, pytest.param(256 << 20, marks=pytest.mark.soak)])
def test_checkpoints_of_many_workers_at_once(pods: Pods, tmp_path: Path, size: int) -> None:
    """What a keeper and a carrier need does not grow with what they carry."""
    pods.describe("true", workers=16)
    keeper = RunKeeper(pods, size=64 << 30)
    keeper.start(checkpoints="/nowhere/ckpt", keeper_port=0)
    try:
        assert keeper.process is not None
        wait_until((keeper.place / "state" / "c").exists, "the keeper")
        address = "127.0.0.1", listens_at(keeper.process.pid)
        secret = (pods.folder / "gang").read_bytes()
        with (tmp_path / "model").open("wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
        found = entries.read(str(tmp_path), "model")
        assert found is not None

        def bring(worker: int) -> None:
            exchange.give_entry(address, secret, worker, str(tmp_path), found, lambda: True)

        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(bring, range(16)))
        took = time.monotonic() - began
        used = most_of(keeper.process.pid)
        print(f"\n16 x {size >> 20} MiB in {took:.1f} s; keeper: {used / 1e6:.1f} MB")
        assert len(list((keeper.place / "kept" / "checkpoints").rglob("model"))) == 16
        assert used < PER_KEEPER
    finally:
        keeper.close()


@pytest.mark.slow
@pytest.mark.parametrize("files", [20_000, pytest.param(200_000, marks=pytest.mark.soak)])
def test_many_files_at_once(pods: Pods, tmp_path: Path, files: int) -> None:
    """What each of them costs the keeper, which takes a bounded number at a time (`MOST_FILES`)."""
    pods.describe("true", workers=1)
    keeper = RunKeeper(pods, size=64 << 30)
    keeper.start(checkpoints="/nowhere/ckpt", keeper_port=0)
    long = "x" * 150
    for number in range(files):
        folder = tmp_path / "many" / f"{long}-{number // 1000}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        (folder / f"{long[:50]}{number:07}").touch()
    try:
        assert keeper.process is not None
        wait_until((keeper.place / "state" / "c").exists, "the keeper")
        before = most_of(keeper.process.pid)
        address = "127.0.0.1", listens_at(keeper.process.pid)
        found = entries.read(str(tmp_path), "many")
        assert found is not None
        assert found.files == files
        secret = (pods.folder / "gang").read_bytes()
        exchange.give_entry(address, secret, 0, str(tmp_path), found, lambda: True)
        used = most_of(keeper.process.pid)
        print(f"\n{files} files: {(used - before) / files:.0f} bytes each; keeper: {used / 1e6:.1f} MB")
        assert used < PER_KEEPER + PER_FILE * files
        assert parse_size("memory", _MOST_MEMORY) > PER_KEEPER + PER_FILE * MOST_FILES
    finally:
        keeper.close()


def most_of(pid: int) -> float:
    """The most bytes that a process has used so far."""
    (found,) = re.findall(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    return 1024.0 * int(found)


def listens_at(pid: int) -> int:
    """The port on which a process listens."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(each.readlink()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            return int(words[1].rpartition(":")[2], 16)
    raise AssertionError("it listens nowhere")
