"""Agents as real processes: gangs that form, workers that do not come, go silent or come back, and output in
full.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.patience import FACTOR
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE, need_python, wait_until

from echelon.agent.task import INTERRUPTED, NO_LEADER, RUN_OVER
from echelon.model.output.log import LogLine, parse_line

Write = Callable[[str], str]
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def is_up(agents: Agents, *workers: int) -> bool:
    return all(
        any(event["kind"] == "worker-running" for event in agents.events(worker)) for worker in workers
    )


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_every_python_from_3_8_on(agents: Agents, write_script: Write, version: str) -> None:
    python = need_python(version)
    script = write_script(
        "import os; print('rank', os.environ['ECHELON_RANK'], 'of', os.environ['ECHELON_RANKS'])"
    )
    agents.describe(python, script, workers=2, procs=2)
    for worker in (1, 0):
        agents.start(worker, python)
    assert [agents.processes[worker].wait(PATIENCE) for worker in (0, 1)] == [0, 0]
    assert agents.verdict()["outcome"] == "succeeded"
    assert sorted(
        line.partition(b"] ")[2] for worker in (0, 1) for line in agents.output(worker) if b"] rank" in line
    ) == [b"rank %d of 4" % rank for rank in range(4)]


def test_a_worker_that_never_arrives_is_named(agents: Agents) -> None:
    limit = 8.0 * FACTOR  # within which the other two must have started
    agents.describe("true", workers=3, join_timeout=limit)
    agents.start(0)
    agents.start(2)
    assert agents.processes[0].wait(PATIENCE) == RUN_OVER
    assert agents.verdict()["cause"]["summary"] == f"worker 1 never arrived within {limit:g} s"
    assert agents.processes[2].wait(PATIENCE) == 0


def test_a_worker_whose_leader_never_answers_gives_up(agents: Agents) -> None:
    agents.describe("true", workers=2, join_timeout=0.5)
    agents.start(1)
    assert agents.processes[1].wait(PATIENCE) == NO_LEADER


def test_a_worker_that_goes_silent_is_lost(agents: Agents, write_script: Write) -> None:
    """Its connection stands, but nothing comes: a machine that hangs."""
    agents.describe(sys.executable, write_script(FOREVER), workers=2, heartbeat=0.2, lost_after=10.0)
    agents.start(0)
    agents.start(1)
    wait_until(lambda: is_up(agents, 0, 1), "both workers")
    agents.processes[1].send_signal(signal.SIGSTOP)
    assert agents.processes[0].wait(PATIENCE) == RUN_OVER
    assert agents.verdict()["cause"]["summary"] == "worker 1 was lost: it sent nothing for 10 s"


@pytest.mark.core
def test_a_worker_that_comes_back_joins_the_next_generation(agents: Agents, write_script: Write) -> None:
    script = write_script(
        "import os, time\nif os.environ['ECHELON_RESTART'] == '0': time.sleep(600)\nprint('again')"
    )
    agents.describe(sys.executable, script, workers=2, restarts=1)
    agents.start(0)
    agents.start(1)
    wait_until(lambda: is_up(agents, 0, 1), "both workers")
    agents.processes[1].kill()
    agents.processes[1].wait()
    agents.start(1, failures=1)
    assert agents.processes[0].wait(PATIENCE) == 0
    assert agents.verdict()["outcome"] == "succeeded"
    ran = [
        (event["worker"], event["restart"]) for event in agents.events(0) if event["kind"] == "worker-running"
    ]
    assert sorted(ran) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_leader_that_comes_back_learns_the_generation_from_its_peers(
    agents: Agents, write_script: Write
) -> None:
    script = write_script(
        "import os, time\nif os.environ['ECHELON_RESTART'] < '2': time.sleep(600)\nprint('again')"
    )
    agents.describe(sys.executable, script, workers=2, restarts=2)
    agents.start(0)
    agents.start(1)
    for failures in (0, 0):  # it is not told of its failures: only the peer knows
        wait_until(lambda: is_up(agents, 0, 1), "both workers")
        (agents.folder / "worker-0.log").write_bytes(b"")
        agents.processes[0].kill()
        agents.processes[0].wait()
        agents.start(0, failures=failures)
    assert agents.processes[0].wait(PATIENCE) == 0
    assert [event["restart"] for event in agents.events(1) if event["kind"] == "worker-running"] == [0, 1, 2]


def test_a_leader_that_is_gone_for_good(agents: Agents, write_script: Write) -> None:
    agents.describe(sys.executable, write_script(FOREVER), workers=2)
    agents.start(0)
    agents.start(1)
    wait_until(lambda: is_up(agents, 0, 1), "both workers")
    agents.processes[0].kill()
    assert agents.processes[1].wait(PATIENCE) == NO_LEADER


@pytest.mark.core
def test_an_agent_that_is_told_to_leave_stops_its_ranks(agents: Agents, write_script: Write) -> None:
    script = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
        + FOREVER
    )
    agents.describe(sys.executable, write_script(script), restarts=1)
    agents.start(0)
    wait_until(lambda: any(line.endswith(b"] up") for line in agents.output(0)), "the rank")
    agents.processes[0].terminate()
    assert agents.processes[0].wait(PATIENCE) == INTERRUPTED
    assert any(line.endswith(b"] saved") for line in agents.output(0))


def test_a_rank_that_ignores_sigterm_is_killed_after_its_grace(agents: Agents, write_script: Write) -> None:
    script = "import signal\nsignal.signal(15, signal.SIG_IGN)\n" + FOREVER
    agents.describe(sys.executable, write_script(script), timeout=1.0, grace=0.5)
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == RUN_OVER
    assert agents.verdict()["outcome"] == "timed-out"


@pytest.mark.core
def test_output_is_complete(agents: Agents, write_script: Write) -> None:
    """No lost last line, no line mixed with another, bytes as they were; a progress bar does not flood."""
    script = write_script(
        "import os, sys\n"
        "for number in range(20000):\n"
        "    os.write(1, b'out %d\\n' % number)\n"
        "    os.write(2, b'err %d\\n' % number)\n"
        "for number in range(5000):\n"
        "    os.write(1, b'\\r%d%% done' % (number // 50))\n"
        "os.write(1, b'\\n\\x00\\xff\\xfe0.0 0 [9] forged\\n0.0 0 [event] {}\\nno newline at the end')\n"
    )
    agents.describe(sys.executable, script, procs=2)
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == 0
    lines = agents.output(0)
    for rank in (0, 1):
        out = [line.partition(b"] ")[2] for line in lines if re.match(rb"\S+ \d+ \[%d\] " % rank, line)]
        err = [line.partition(b"] ")[2] for line in lines if re.match(rb"\S+ \d+e \[%d\] " % rank, line)]
        assert err == [b"err %d" % number for number in range(20000)]
        assert out[:20000] == [b"out %d" % number for number in range(20000)]
        assert out[20000:] == [
            b"99% done",
            b"\x00\xff\xfe0.0 0 [9] forged",
            b"0.0 0 [event] {}",
            b"no newline at the end",
        ]
        raw = Path(agents.task["logs"], f"rank-{rank}.log").read_bytes()
        assert [line for line in raw.splitlines() if line.startswith(b"err")] == err
        assert [line for line in raw.splitlines() if line.startswith(b"out")] == out[:20000]
        assert raw.count(b"\r") == 5000
        assert b"\x00\xff\xfe0.0 0 [9] forged\n0.0 0 [event] {}\n" in raw
        assert raw.endswith(b"\nno newline at the end")
    numbers = [int(match[1]) for line in lines if (match := re.match(rb"\S+ (\d+)[e~]* \[\d\] ", line))]
    assert numbers == list(range(len(numbers)))


def test_a_reader_that_is_slow_makes_the_ranks_wait_and_loses_nothing(
    agents: Agents, write_script: Write
) -> None:
    """In a pod the agent writes into a pipe.

    It must neither block (its heartbeats go on) nor grow without bound.
    """
    agents.describe(sys.executable, write_script("import sys\nfor n in range(300000): print('line', n)"))
    read, write = os.pipe()
    with agents.start(0, stdout=write) as process:
        os.close(write)
        data = [os.read(read, 10)]
        # A reader that is slow: by now a rank that nobody holds back would have written it all.
        time.sleep(1.0)
        peak = 0
        while piece := os.read(read, 65536):
            data.append(piece)
            peak = max(peak, _resident(process.pid))
        assert process.wait(PATIENCE) == 0
    os.close(read)
    lines = [line for line in b"".join(data).splitlines() if re.match(rb"\d+ \[0\] ", line)]
    assert [line.partition(b"] ")[2] for line in lines] == [b"line %d" % number for number in range(300000)]
    assert peak < 64 * 2**20


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def test_a_full_disk_costs_lines_not_the_run(agents: Agents, write_script: Write) -> None:
    agents.describe(
        sys.executable, write_script("for n in range(1000): print('line', n)"), logs="/dev/full/logs"
    )
    with Path("/dev/full").open("wb") as full:
        assert agents.start(0, stdout=full).wait(PATIENCE) == 0
    assert agents.verdict()["outcome"] == "succeeded"


SAVES = """
import os, signal, sys, time
def save(*_):
    print("saving", flush=True)
    time.sleep(1.5)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", os.environ["ECHELON_RESTART"], flush=True)
if os.environ["ECHELON_RESTART"] == "0":
    time.sleep(600)
"""


def said(agents: Agents, worker: int) -> list[str]:
    lines = (parse_line(raw, worker) for raw in agents.output(worker))
    return [line.text for line in lines if isinstance(line, LogLine) and line.rank is not None]


def test_an_agent_told_to_leave_leaves_although_the_leader_speaks_to_it_meanwhile(
    agents: Agents, write_script: Write
) -> None:
    """Its rank takes a while to save; before that is over, the gang is stopped by another failure."""
    script = write_script(SAVES + "if os.environ['ECHELON_RANK'] == '0': sys.exit(3)\n")
    agents.describe(sys.executable, script, workers=2, restarts=1)
    agents.start(0)
    leaver = agents.start(1)
    wait_until(lambda: "up 0" in said(agents, 1), "the rank")
    leaver.terminate()
    wait_until(lambda: "saving" in said(agents, 1), "the rank to save")
    agents.processes[0].send_signal(signal.SIGTERM)
    assert leaver.wait(PATIENCE) == INTERRUPTED


def test_generations_do_not_overlap_when_a_leader_comes_back(agents: Agents, write_script: Write) -> None:
    agents.describe(sys.executable, write_script(SAVES), workers=2, restarts=1)
    agents.start(0)
    agents.start(1)
    wait_until(lambda: "up 0" in said(agents, 0) and "up 0" in said(agents, 1), "both ranks")
    agents.processes[0].kill()
    agents.processes[0].wait()
    agents.start(0, failures=1)
    assert agents.processes[0].wait(PATIENCE) == 0
    assert said(agents, 1) == ["up 0", "saving", "saved", "up 1"]


def test_ranks_can_be_interrupted(agents: Agents, write_script: Write) -> None:
    """The agent does not mind SIGINT and SIGHUP; what it starts must be able to."""
    agents.describe(
        sys.executable, write_script("import signal; print(signal.getsignal(2), signal.getsignal(1))")
    )
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == 0
    assert (
        said(agents, 0) == ["<built-in function default_int_handler> 0"]
        or "Handlers.SIG_DFL" in said(agents, 0)[0]
    )


def test_everybody_frozen_for_a_while_is_not_a_loss(agents: Agents, write_script: Write) -> None:
    """A laptop's lid, a paused container: nobody was heard of, but nobody is gone."""
    script = write_script(
        "import time, os\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)"
    )
    agents.describe(sys.executable, script, workers=2, heartbeat=0.1, lost_after=10.0)
    for worker in (0, 1):
        agents.start(worker)
    wait_until(lambda: is_up(agents, 0, 1), "both workers")
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in agents.processes.values():
            process.send_signal(number)
        time.sleep(12.0)
    (agents.folder / "go").touch()
    assert agents.processes[0].wait(PATIENCE) == 0
