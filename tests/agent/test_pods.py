"""Gangs of agents in pods: how they form, whose log tells what, and who is replaced."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testbed.patience import FACTOR
from tests.agent.pods import UP, Pods
from tests.conftest import PATIENCE, need_python, wait_until

from echelon.agent import task as agent_task
from echelon.agent.gang.wire import encode, fresh_nonce, prove
from echelon.agent.task import NO_LEADER, RANK_FAILED, RUN_OVER
from echelon.model.output.log import may_be_event

ADDRESSES = "import os; print(os.environ['PEERS'], os.environ['ECHELON_WORKER'])"
PEERS = {"launch": {"wiring": {"PEERS": "{address:0} {address:1}"}}}


@pytest.mark.core
@pytest.mark.parametrize("version", ["3.8", "newest"])
def test_a_gang_from_a_zip_file(pods: Pods, version: str) -> None:
    """The members call before there is a leader; their numbers come from their environment."""
    python = need_python(version)
    pods.script(ADDRESSES, workers=4, python=python, **PEERS)
    pods.start_all(python=python)
    assert [pods.code(worker) for worker in range(4)] == [0, 0, 0, 0]
    for worker in range(4):
        assert pods.said(worker) == [f"127.0.0.1 127.0.0.1 {worker}"]
    assert pods.last_words()["outcome"] == "succeeded"


@pytest.mark.core
def test_the_leaders_log_tells_the_whole_story(pods: Pods) -> None:
    pods.script("print('hello')", workers=3)
    pods.start_all()
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0]
    for worker in (1, 2):
        own = pods.events(worker)
        assert [event["kind"] for event in own] == ["worker-running", "rank-ended", "worker-ended"]
        retold = [event for event in pods.events(0) if event.get("worker") == worker]
        assert retold[0]["kind"] == "worker-started"
        assert retold[1:] == own  # their times are those of the member
    assert pods.kinds(0, of=0) == ["worker-started", "worker-running", "rank-ended", "worker-ended"]
    story = pods.events(0)
    verdict = [event["kind"] for event in story].index("verdict")
    assert {event["kind"] for event in story[verdict + 1 :]} == {"worker-ended"}
    assert (story[-1]["kind"], story[-1]["worker"]) == ("worker-ended", 0)


def test_the_end_of_a_worker_is_told_after_its_last_word(pods: Pods) -> None:
    pods.script("for number in range(30000): print('line', number)", workers=2)
    pods.start_all()
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    for worker in (0, 1):
        assert pods.said(worker) == [f"line {number}" for number in range(30000)]
        assert b'"worker-ended"' in pods.log(worker)[-1]
        expected = 0  # an event has the number of the line that comes next
        for line in pods.log(worker):
            is_event = may_be_event(line)
            assert int(line.split()[1]) == expected
            expected += not is_event


def test_the_worker_whose_rank_failed_shows_it(pods: Pods) -> None:
    pods.script("import os, sys; sys.exit(3 * (os.environ['ECHELON_WORKER'] == '1'))", workers=3)
    pods.start_all()
    assert [pods.code(worker) for worker in range(3)] == [RUN_OVER, RANK_FAILED, 0]
    assert pods.last_words(1)["cause"] == pods.last_words(0)["cause"]
    assert (pods.place(1) / "termination").read_text().startswith("rank 1 exited with code 3")


def test_an_address_is_taken_as_it_is_said(pods: Pods) -> None:
    pods.script(ADDRESSES, workers=2, **PEERS)
    pods.start(1, env={"ECHELON_POD_IP": "::1"})
    pods.start(0, env={"ECHELON_POD_IP": "127.0.0.7"})
    assert pods.code(0) == 0
    assert pods.said(0) == ["127.0.0.7 ::1 0"]


@pytest.mark.parametrize("nonsense", ["", "elsewhere", "127.0.0.1:80", "127.1", "[::1]", "{address:0}"])
def test_an_address_that_is_none_is_not_believed(pods: Pods, nonsense: str) -> None:
    pods.script(ADDRESSES, workers=2, **PEERS)
    pods.start(1, env={"ECHELON_POD_IP": nonsense})
    pods.start(0, env={"ECHELON_POD_IP": nonsense})
    assert pods.code(0) == 0
    assert pods.said(0) == ["127.0.0.1 127.0.0.1 0"]


GREETINGS: list[dict[str, object]] = [
    {"address": "evil", "last_started": "5", "elapsed": "x", "failures": None, "finished": "yes"},
    {"address": ["127.0.0.1"], "last_started": 1.5, "elapsed": -1, "failures": -7},
    {"address": {}, "last_started": None, "elapsed": 1e300, "failures": "many"},
    {"elapsed": float("nan"), "finished": 1},
]


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_member_that_greets_in_nonsense_is_a_member_all_the_same(
    pods: Pods, greeting: dict[str, object]
) -> None:
    """It knows the secret; what else it says is taken only as far as it makes sense."""
    wiring = {"PEER": "{address:1}"}
    pods.script("print('hello')", workers=2, timeout=300, launch={"wiring": wiring})
    pods.start(0)
    with _member(pods, greeting) as sock:
        file = sock.makefile("rb")
        heard = [json.loads(file.readline())["say"] for _ in range(2)]
        assert heard == ["welcome", "prepare"]
        for event in ("word", None, {}, {"kind": 3}, {"kind": "note", "worker": 0, "reason": "x"}):
            sock.sendall(encode({"say": "event", "event": event}))
        for word in ("verdict", "nonsense", None):
            sock.sendall(encode({"say": word, "verdict": {"outcome": "glory"}}))
        sock.sendall(encode({"say": "ready", "generation": 0, "ports": []}))
        assert json.loads(file.readline())["addresses"] == {"1": "127.0.0.1"}
        sock.sendall(encode({"say": "done", "generation": 0}))
        while json.loads(file.readline())["say"] != "finish":
            pass
        file.close()
    assert pods.code(0) == 0
    assert pods.verdict()["outcome"] == "succeeded"
    assert [event["worker"] for event in pods.events(0) if event["kind"] == "note"] == [1]


def _member(pods: Pods, greeting: dict[str, object]) -> socket.socket:
    wait_until(lambda: _listens(pods.port), "the leader to listen")
    sock = socket.create_connection(("127.0.0.1", pods.port))
    sock.settimeout(PATIENCE)
    theirs = json.loads(sock.makefile("rb", buffering=0).readline())["nonce"]
    mine = fresh_nonce()
    proof = prove((pods.folder / "gang").read_bytes(), "member", 1, theirs, mine)
    sock.sendall(encode({"say": "me", "worker": 1, "nonce": mine, "proof": proof, **greeting}))
    return sock


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


# Replaced


def test_a_member_lost_before_the_first_start_costs_no_restart(pods: Pods) -> None:
    """Its pod was evicted while the others' images were pulled: nothing has happened yet."""
    pods.script("print('hello')", workers=2)
    pods.start(1, failures=1)
    pods.start(0)
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert "restarting" not in pods.kinds()


def test_a_replaced_leader_without_a_restart_left_concludes_at_once(pods: Pods) -> None:
    """Nobody else is there, nobody can hold results, and nobody is waited for."""
    pods.script(UP, workers=4, join_timeout=3600)
    pods.start(0, failures=1)
    assert pods.code(0) == RUN_OVER
    words = "worker 0 was lost: its agent had to be replaced, and no restart is left"
    assert pods.last_words()["cause"]["summary"] == words
    assert pods.kinds() == ["worker-started", "verdict", "worker-ended"]


def test_members_whose_leader_is_lost_for_good_say_why_they_leave(pods: Pods) -> None:
    pods.script(UP, workers=2)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[0].kill()
    assert pods.code(1) == NO_LEADER
    assert pods.last_words(1) == {"reason": "worker 0 was lost, and no restart is left"}


def test_a_new_leader_hears_what_happened_while_there_was_none(pods: Pods) -> None:
    pods.script(UP, workers=2, restarts=2, timeout=3600)
    pods.start_all()
    pods.wait_up(0, 1)
    pods.processes[0].kill()
    pods.processes[0].wait()
    pods.wait_for("rank-ended", 1)
    pods.start(0, failures=1)
    pods.wait_for("worker-running", of=1)
    assert pods.kinds(0, of=1) == ["worker-started", "rank-ended", "worker-running"]


def test_a_time_limit_does_not_begin_anew_with_a_new_leader(pods: Pods) -> None:
    """The first leader dies before the limit; the second has been there for no time at all when it ends."""
    limit = 10.0 * FACTOR
    pods.script(UP, workers=2, restarts=5, timeout=limit)
    pods.start_all()
    pods.wait_up(0, 1)
    os.kill(pods.processes[0].pid, signal.SIGKILL)
    pods.processes[0].wait()
    time.sleep(limit)
    pods.start(0, failures=1)
    assert pods.code(0) == RUN_OVER
    assert pods.last_words()["outcome"] == "timed-out"
    assert pods.said(0) == []  # it never came to a start of its own


def test_whoever_was_replaced_most_often_counts_where_nobody_has_seen_it_all(pods: Pods) -> None:
    pods.script("import os; print(os.environ['ECHELON_RESTART'])", workers=2, restarts=5)
    pods.start(1, failures=3)
    pods.start(0, failures=1)
    assert pods.code(0) == 0
    assert pods.said(0) == ["3"]


# Small things


def test_a_task_that_cannot_be_used_is_named(pods: Pods) -> None:
    for content in ("{", "[]", '{"schema": 99}', json.dumps({"schema": 1})):
        (pods.folder / "bad.json").write_text(content)
        done = _run(pods, str(pods.folder / "bad.json"))
        assert done.returncode == RUN_OVER
        assert "bad.json cannot be used" in done.stderr
    assert _run(pods).returncode == 2


def test_a_task_of_a_newer_echelon_is_refused_with_both_versions(pods: Pods) -> None:
    newer = agent_task.SCHEMA + 1
    (pods.folder / "bad.json").write_text(json.dumps({"schema": newer, "version": "9.9"}))
    done = _run(pods, str(pods.folder / "bad.json"))
    assert done.returncode == RUN_OVER
    assert f"schema {newer}, written by echelon 9.9" in done.stderr
    assert f"this agent, of echelon {agent_task.VERSION}," in done.stderr
    assert "Submit the run again" in done.stderr


def test_every_agent_states_its_version(pods: Pods) -> None:
    pods.script(UP, workers=2)
    pods.start_all()
    wait_until(lambda: pods.kinds(0).count("worker-running") == 2, "both workers")
    started = [event for event in pods.events(0) if event["kind"] == "worker-started"]
    assert {(event["worker"], event["version"]) for event in started} == {
        (0, agent_task.VERSION),
        (1, agent_task.VERSION),
    }


def test_a_worker_that_the_run_does_not_have(pods: Pods) -> None:
    pods.script(UP)
    pods.start(0, env={"JOB_COMPLETION_INDEX": "7"})
    assert pods.code(0) == RUN_OVER
    assert pods.log(0) == [b"the run has no worker 7"]


def test_a_port_that_is_taken_is_told_in_the_last_words(pods: Pods) -> None:
    pods.script(UP)
    with socket.create_server(("", pods.port)):
        pods.start(0)
        assert pods.code(0) == 1
    assert "Address already in use" in pods.last_words()["reason"]


def test_output_folders_are_made_and_a_refusal_ends_the_run(pods: Pods) -> None:
    Path(pods.folder / "file").touch()
    pods.script(UP, restarts=3, output=str(pods.folder / "file" / "output"))
    pods.start(0)
    assert pods.code(0) == RUN_OVER
    cause = pods.last_words()["cause"]
    assert "the output folder cannot be made: " in cause["summary"]
    assert cause["exit_code"] == 115
    assert pods.said(0) == []


def _run(pods: Pods, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(pods.archive), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_ranks_that_wait_for_one_that_has_ended_say_where(pods: Pods) -> None:
    """Their Python loads what that takes from the zip file that the agent runs from."""
    pods.script(
        "import os, time\n"
        "def wait_for_peers():\n    print('up', flush=True)\n    time.sleep(600)\n"
        "if os.environ['ECHELON_RANK'] == '0': wait_for_peers()\n",
        workers=2,
        timeout=8.0,
    )
    pods.start_all()
    assert pods.code(0) == RUN_OVER
    verdict = pods.verdict()
    assert verdict["outcome"] == "timed-out"
    assert "rank 1 had exited 0 after " in verdict["reason"]
    assert verdict["reason"].endswith("rank 0 was in wait_for_peers (script.py:4)")
    assert any("(most recent call first):" in line for line in pods.said(0))


@pytest.mark.slow
def test_output_that_a_full_disk_has_cut_is_in_the_verdict_and_told_once(pods: Pods) -> None:
    """`/dev/full` is a disk that has no room."""
    logs = pods.folder / "logs"
    logs.mkdir()
    for rank in range(4):
        (logs / f"rank-{rank}.log").symlink_to("/dev/full")
    pods.script("print('hello')", workers=2, procs=2, logs=str(logs))
    pods.start_all()
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    story = pods.events(0)
    notes = [event for event in story if event["kind"] == "note"]
    (told,) = (event["reason"] for event in notes if event["reason"])
    assert told.endswith("lacks lines: No space left on device; the run goes on")
    assert told.startswith("worker ")
    (verdict,) = (event for event in story if event["kind"] == "verdict")
    expected = [
        f"worker {rank // 2}: the log of rank {rank} lacks lines: No space left on device"
        for rank in range(4)
    ]
    assert (verdict["outcome"], sorted(verdict["missing"])) == ("succeeded", expected)
    assert sorted(pods.last_words(0)["missing"]) == expected


@pytest.mark.slow
def test_a_new_leader_learns_which_output_lacks_lines(pods: Pods) -> None:
    logs = pods.folder / "logs"
    logs.mkdir()
    (logs / "rank-1.log").symlink_to("/dev/full")
    until = "if os.environ['ECHELON_RESTART'] == '0': time.sleep(600)"
    until = f"import os, time\nprint('up', flush=True)\n{until}"
    pods.script(until, workers=2, restarts=2, logs=str(logs))
    pods.start_all()
    pods.wait_up(0, 1)
    pods.wait_for("note")
    pods.processes[0].kill()
    pods.processes[0].wait()
    pods.start(0, failures=1)
    assert pods.code(0) == 0
    (verdict,) = (event for event in pods.events(0) if event["kind"] == "verdict")
    assert verdict["missing"] == ["worker 1: the log of rank 1 lacks lines: No space left on device"]
