"""Every way in which ranks of PyTorch come to wait for each other, from the command to the verdict: ranks
are real, with Gloo, and the one that the others wait for is named.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.ranks.stuck.test_looking import write_torch

Call = Callable[..., subprocess.CompletedProcess[str]]
HANG = Path(__file__).parents[2] / "agent" / "gang" / "hangs" / "hang.py"
RANKS = Path(__file__).parents[2] / "agent" / "ranks"
DUMP = RANKS / "stuck" / "answers" / "nccl-dump.pickle"
STALL, TIMEOUT = "8s", "6"
SHAPE = r"\(\[64, 64\] float32\)"
SIX = rf"all_reduce 6 {SHAPE}"
ONE = rf"all_reduce 1 of process group \d {SHAPE}"
# What the cause says of each way, with {odd} and {others}; and how many ranks have it in `make test-all`.
STUCK = {
    "asleep": (rf"rank {{odd}} never called {SIX}; {{others}} in it", 3),
    "computes": (rf"rank {{odd}} never called {SIX}; {{others}} in it", 2),
    "reads": (rf"rank {{odd}} never called {SIX}; {{others}} in it", 4),
    "stopped": (rf"rank {{odd}} is stopped \(SIGSTOP\) before {SIX}; {{others}} in it", 3),
    "order": (rf"rank {{odd}} called broadcast 6 {SHAPE}, where .* called {SIX}", 3),
    "part": (rf"rank {{odd}} never called all_reduce 1 of ranks 0, {{odd}} {SHAPE}; rank 0 waits in it", 4),
    "groups": (
        rf"process groups: rank 0 waits for rank {{odd}} in {ONE}, and rank {{odd}} waits for .* {ONE}",
        3,
    ),
    "start": (r"rank {odd} is in wait_long \(hang.py:\d+\); ", 2),
}
# These do not hang: Gloo gives up at once.
FAILS = {
    "smaller": (
        r"rank {odd} was killed by SIGABRT.* \(gloo::EnforceNotMet: received \d+ bytes, where \d+",
        3,
    ),
    "larger": (rf"rank {{odd}} called all_reduce 6 \(\[128, 64\] float32\), where .* called {SIX}", 4),
    "exits": (r"rank {odd} exited 0 after \d+ s, and then rank \d+ exited with code 1: RuntimeError: ", 2),
}
ROUNDS = 10


def _cases(table: dict[str, tuple[str, int]]) -> list[object]:
    """Each way once, and for soak ten times with any number of ranks from two to eight."""
    cases: list[object] = []
    for way, (_, ranks) in table.items():
        cases.append(pytest.param(way, ranks, id=f"{way}-{ranks}"))
        fewest = 3 if way == "larger" else 2  # of two, either has the other size
        for number in range(ROUNDS):
            count = fewest + number % (9 - fewest)
            cases.append(pytest.param(way, count, id=f"{way}-{count}-{number}", marks=pytest.mark.soak))
    return cases


def _cause_of(
    call: Call, way: str, ranks: int, *words: str, command: tuple[str, ...] = (str(HANG),)
) -> dict[str, object]:
    more = ("--framework", "torch", "--grace", "2", "-n", str(ranks))
    done = call("run", "--name", "fm", *more, *words, *command, way)
    assert done.returncode, "it is not success"
    status = json.loads(call("status", "fm", "-o", "json").stdout)
    cause = status["root_cause"]
    assert isinstance(cause, dict), (status, done.stderr)
    print(cause["summary"])
    return cause


def _expected(pattern: str, ranks: int) -> str:
    odd = ranks - 1
    listed = {2: "rank 0 waits", 3: "ranks 0, 1 wait", 4: "ranks 0, 1, 2 wait"}
    others = listed.get(ranks, f"ranks 0-{odd - 1} wait")
    return pattern.format(odd=odd, others=others)


@pytest.fixture(autouse=True)
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pipe that nobody writes to, in place of a file on a disk that does not answer."""
    path = tmp_path / "part-17"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    monkeypatch.setenv("PART", str(path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    os.close(writer)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "ranks"), _cases(STUCK))
def test_ranks_that_wait_for_each_other(call: Call, way: str, ranks: int) -> None:
    cause = _cause_of(call, way, ranks, "--stall", STALL)
    assert cause["kind"] == "stuck"
    pattern = _expected(STUCK[way][0], ranks)
    if way == "order" and ranks == 2:
        pattern = rf"rank 1 called broadcast 6 {SHAPE}, where rank 0 called {SIX}"
    assert re.search(pattern, str(cause["summary"])), cause["summary"]


# BUG: nothing was known of ranks below a shell, and ranks that torchrun starts were not asked.
@pytest.mark.slow
@pytest.mark.parametrize(("way", "ranks"), [("reads", 2), ("computes", 3), ("groups", 3), ("stopped", 2)])
def test_ranks_below_a_shell(call: Call, way: str, ranks: int) -> None:
    command = ("--", "bash", "-c", f'"$0" {HANG} "$1"; exit $?', sys.executable)
    cause = _cause_of(call, way, ranks, "--stall", STALL, command=command)
    assert cause["kind"] == "stuck"
    assert re.search(_expected(STUCK[way][0], ranks), str(cause["summary"])), cause["summary"]
    if way == "reads":
        assert "rank 1: load_batch (hang.py:28)" in str(cause["peers"])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["asleep", "order"])
def test_ranks_that_torchrun_starts(call: Call, way: str) -> None:
    """Each of two workers has one torchrun, with two ranks of its own."""
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    command = ("--procs", "2", "--", torchrun, str(HANG))
    cause = _cause_of(call, way, 2, "--stall", STALL, command=command)
    assert cause["kind"] == "stuck"
    assert re.search(_expected(STUCK[way][0], 4), str(cause["summary"])), cause["summary"]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "ranks"), _cases(FAILS))
def test_ranks_that_fail_at_once(call: Call, way: str, ranks: int) -> None:
    cause = _cause_of(call, way, ranks)
    assert cause["kind"] == "rank"
    assert re.search(_expected(FAILS[way][0], ranks), str(cause["summary"])), cause["summary"]


# In place of torch, NCCL and a second GPU: what these have really written and said (`stuck/answers`).
WATCHDOG = """
    import os, pathlib, sys, time
    import torch.distributed, torch._C._distributed_c10d
    folder, output = pathlib.Path("recorded"), pathlib.Path(os.environ["ECHELON_OUTPUT"])
    if os.environ["RANK"] == "1":
        (output / "up").touch()
        while True:
            time.sleep(1)
    while not (output / "up").exists():
        time.sleep(0.1)
    path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "0"
    pathlib.Path(path).write_bytes((folder / "dump.pickle").read_bytes())
    sys.stderr.write((folder / "watchdog.txt").read_text().partition("Fatal Python error")[0])
    sys.stderr.flush()
    os.abort()
"""


# BUG: "rank 0 was killed by SIGABRT: an assertion in native code (frame #4: <unknown function> ...)"
@pytest.mark.slow
def test_the_dump_of_nccl_s_watchdog(call: Call, write: Callable[..., Path], tmp_path: Path) -> None:
    """Recorded of one rank on an H200; the other one is that rank before its last call."""
    dump = pickle.loads(DUMP.read_bytes())
    dump["pg_config"]["0"]["ranks"] = "[0, 1]"
    write_torch(Path.cwd(), "2.11.0")
    module = Path("torch/distributed/distributed_c10d.py")
    text = module.read_text().replace("return 0", 'return int(os.environ["RANK"])')
    module.write_text(f"import os\n{text}")
    Path("recorded").mkdir()
    Path("recorded/dump.pickle").write_bytes(pickle.dumps(dump, protocol=2))
    Path("recorded/watchdog.txt").write_bytes((RANKS / "watchdog.txt").read_bytes())
    del dump["entries"][-1]
    dump["pg_status"]["0"]["last_enqueued_collective"] = 5
    text = f"def _dump_nccl_trace_json():\n    return {json.dumps(dump).encode()!r}\n"
    Path("torch/_C/_distributed_c10d.py").write_text(text)
    script = write("train.py", WATCHDOG)
    done = call("run", "--name", "fm", "--framework", "torch", "--grace", "2", "-n", "2", str(script))
    assert done.returncode == 134, done.stderr
    cause = json.loads(call("status", "fm", "-o", "json").stdout)["root_cause"]
    waited = (
        "rank 1 never called all_reduce 6 ([64, 64] float32); rank 0 waits in it; then rank 0 was killed by"
    )
    gave_up = "(c10::DistBackendError: Watchdog caught collective operation timeout: ALLREDUCE 6, after 8 s)"
    assert re.fullmatch(rf"{re.escape(waited)} SIGABRT, .*{re.escape(gave_up)}", cause["summary"])
    places = r"rank 1: <module> \(train.py:\d+\); rank 0: all_reduce \(train.py:10\)"
    assert re.fullmatch(places, cause["peers"])
    assert Path("runs/fm/logs/flight-recorder/rank_0").exists(), "it is kept for torch's own tools"


# BUG: the rank that had waited was the cause, and the one that it had waited for was not named.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "ranks"),
    _cases({"asleep": STUCK["asleep"], "groups": STUCK["groups"]}),
)
def test_a_collective_that_takes_longer_than_torch_waits(
    call: Call, way: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --stall, and in less than the time after which ranks are looked at."""
    monkeypatch.setenv("TIMEOUT", TIMEOUT)
    cause = _cause_of(call, way, ranks)
    assert cause["kind"] == "rank"
    then = r"; then rank \d+ exited with code 1: RuntimeError: Timed out waiting 6000ms for"
    assert re.search(_expected(STUCK[way][0], ranks) + then, str(cause["summary"])), cause["summary"]
