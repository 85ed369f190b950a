"""Orders to an agent in a pod, and results that are held for whoever fetches them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from tests.agent.pods import UP, Pods
from tests.conftest import PATIENCE, need_python, wait_until

from echelon.agent import control
from echelon.agent.task import INTERRUPTED, NO_LEADER, RANK_FAILED, RUN_OVER

FOR_LONG = 3600.0


def test_results_are_held_until_released(pods: Pods) -> None:
    """Every log is complete before; the leader lets the members go first."""
    pods.script("print('hello')", workers=3, hold=FOR_LONG)
    pods.start_all()
    before = time.time()
    for worker in range(3):
        pods.wait_for("worker-ended", worker, of=worker)
    story = pods.events(0)
    holding = [event for event in story if event["kind"] == "holding"]
    assert len(holding) == 1
    assert before + FOR_LONG < holding[0]["until"] < time.time() + FOR_LONG
    assert [event["kind"] for event in story if event.get("worker") in (0, None)][-3:] == [
        "verdict",
        "holding",
        "worker-ended",
    ]
    assert story[-1]["worker"] == 0
    assert pods.verdict()["outcome"] == "succeeded"
    assert json.loads(pods.order(0, "fetch").stdout)["until"] >= holding[0]["until"] - 0.01
    assert all(process.poll() is None for process in pods.processes.values())
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0]
    # Nothing comes after the end, but that the end of holding may have moved at the orders.
    assert without_holding(pods.events(0)) == without_holding(story)
    assert not (pods.place(0) / "state" / "c").exists()


def without_holding(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] != "holding"]


def test_a_failed_run_holds_its_results_too(pods: Pods) -> None:
    pods.script("raise SystemExit(3)", workers=2, hold=FOR_LONG)
    pods.start_all()
    pods.wait_for("holding")
    pods.wait_for("worker-ended", of=0)
    assert pods.order(0, "release").returncode == 0
    failed_first = pods.last_words()["cause"]["worker"]
    assert [pods.code(worker) for worker in (0, 1)] == [RUN_OVER, RANK_FAILED if failed_first else 0]
    assert pods.last_words()["exit_code"] == 3


def test_nobody_fetches_them(pods: Pods) -> None:
    pods.script("print('hello')", workers=2, hold=0.5)
    pods.start_all()
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert "holding" in pods.kinds()


@pytest.mark.parametrize(("exit_code", "expected"), [(0, 0), (3, INTERRUPTED)])
def test_sigterm_to_a_leader_whose_members_hold(pods: Pods, exit_code: int, expected: int) -> None:
    """It leaves alone, with a code that ends none of their pods."""
    pods.script(f"raise SystemExit({exit_code})", workers=2, hold=FOR_LONG)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    pods.processes[0].terminate()
    assert pods.code(0) == expected
    assert pods.last_words()["outcome"] in ("succeeded", "failed")  # the verdict, not why it left
    wait_until(lambda: 1 in held_alone(pods, 1), "the member to say that it holds its results by itself")
    assert pods.processes[1].poll() is None
    assert pods.order(1, "release").returncode == 0
    assert pods.code(1) in ((0, RANK_FAILED) if exit_code else (0,))  # if its rank was the first to fail


@pytest.mark.parametrize(("exit_code", "expected"), [(0, 0), (3, RUN_OVER)])
def test_sigterm_to_the_only_worker_while_it_holds(pods: Pods, exit_code: int, expected: int) -> None:
    pods.script(f"raise SystemExit({exit_code})", hold=FOR_LONG)
    pods.start(0)
    pods.wait_for("worker-ended", of=0)
    pods.processes[0].terminate()
    assert pods.code(0) == expected


def held_alone(pods: Pods, worker: int) -> set[int]:
    """The workers that hold results without a leader, as a worker's log says."""
    states = [event for event in pods.events(worker) if event["kind"] == "state"]
    return {each["worker"] for state in states for each in state["events"] if each["kind"] == "holding"}


def verdict_in(pods: Pods, worker: int) -> dict[str, Any]:
    """The verdict in a member's log."""
    events = [each for event in pods.events(worker) for each in event.get("events", ())]
    found: dict[str, Any] = next(each for each in events if each["kind"] == "verdict")
    return found


LOST_RESULTS = """
import os, time
with open(os.environ["ECHELON_OUTPUT"] + "/result", "w") as file:
    file.write("mine")
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_leader_is_lost_for_good_and_the_others_hold_what_they_have(
    pods: Pods, end: signal.Signals
) -> None:
    """Each says so in its own log, with the verdict, and leaves when its results were fetched."""
    pods.script(LOST_RESULTS, workers=3, hold=FOR_LONG, lost_after=5.0, heartbeat=0.2)
    pods.start_all()
    pods.wait_up(0, 1, 2)
    pods.processes[0].send_signal(end)
    assert pods.code(0) == (INTERRUPTED if end == signal.SIGTERM else -end)
    for worker in (1, 2):
        wait_until(lambda worker=worker: worker in held_alone(pods, worker), "it to hold")  # type: ignore[misc]
        verdict = verdict_in(pods, worker)
        assert (verdict["outcome"], verdict["exit_code"]) == ("failed", 117)
        assert (verdict["cause"]["worker"], verdict["cause"].get("rank")) == (0, None)
        assert verdict["cause"]["kind"] == ("worker-left" if end == signal.SIGTERM else "worker-lost")
        assert (pods.place(worker) / "output" / "result").read_text() == "mine"
        notes = [event["reason"] for event in pods.events(worker) if event["kind"] == "note"]
        assert any("holds its results without worker 0" in note for note in notes)
    for worker in (1, 2):
        assert pods.processes[worker].poll() is None
        assert pods.order(worker, "release").returncode == 0
        assert pods.code(worker) == (0 if end == signal.SIGTERM else NO_LEADER)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_leader_that_comes_back_to_members_that_hold(pods: Pods, end: signal.Signals) -> None:
    """It takes their verdict over, and ends the run when they are released."""
    pods.script(LOST_RESULTS, workers=3, hold=FOR_LONG, lost_after=5.0, heartbeat=0.2)
    pods.start_all()
    pods.wait_up(0, 1, 2)
    pods.processes[0].send_signal(end)
    pods.processes[0].wait()
    wait_until(lambda: 1 in held_alone(pods, 1) and 2 in held_alone(pods, 2), "both to hold")
    verdict = verdict_in(pods, 1)
    pods.start(0, failures=1)
    pods.wait_for("holding")
    pods.wait_for("worker-ended", of=0)
    assert pods.verdict()["cause"] == verdict["cause"]
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in range(3)] == [RUN_OVER, 0, 0]


def test_sigterm_to_a_member_that_holds(pods: Pods) -> None:
    pods.script("print('hello')", workers=2, hold=FOR_LONG)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    pods.processes[1].terminate()
    assert pods.code(1) == 0
    assert pods.order(0, "release").returncode == 0
    assert pods.code(0) == 0
    assert "worker-lost" not in pods.kinds()


def test_a_member_is_released_by_itself(pods: Pods) -> None:
    pods.script("print('hello')", workers=2, hold=FOR_LONG)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    assert pods.order(1, "release").returncode == 0
    assert pods.code(1) == 0
    assert pods.processes[0].poll() is None


def test_a_new_leader_takes_over_the_verdict_of_a_run_whose_results_are_held(pods: Pods) -> None:
    """The leader's machine dies when all is done: nothing starts over, and the others' results are kept."""
    pods.script("print('hello')", workers=3, hold=FOR_LONG, restarts=2)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    pods.processes[0].kill()
    pods.processes[0].wait()
    pods.start(0, failures=1)
    pods.wait_for("worker-ended", of=0)
    assert pods.verdict()["outcome"] == "succeeded"
    assert "worker-running" not in pods.kinds()
    assert "holding" in pods.kinds()
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in range(3)] == [0, 0, 0]
    assert pods.said(1) == ["hello"]


def test_without_a_leader_members_hold_on(pods: Pods) -> None:
    pods.script("print('hello')", workers=2, hold=FOR_LONG)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    pods.processes[0].kill()
    wait_until(lambda: 1 in held_alone(pods, 1), "the member to say that it holds its results by itself")
    assert pods.processes[1].poll() is None
    assert pods.order(1, "release").returncode == 0
    assert pods.code(1) == 0


# The time for which they are held


class Copy:
    """`files send` beside an agent, as a client runs it by `exec`: here with nobody who reads, so that it
    goes on until it is closed.
    """

    def __init__(self, pods: Pods, worker: int) -> None:
        (pods.place(worker) / "output" / "large").write_bytes(bytes(1 << 20))
        command = [sys.executable, str(pods.archive), "files", "send", str(pods.place(worker) / "output")]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0)
        assert self._process.stdout is not None
        self._process.stdout.read(1)  # it has begun

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(PATIENCE)


@pytest.mark.parametrize("worker", [0, 1])
def test_the_time_does_not_pass_while_files_are_copied(pods: Pods, worker: int) -> None:
    """Nor does the leader leave meanwhile."""
    gate = pods.folder / "gate"
    script = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    pods.script(script, workers=2, hold=4.0)
    pods.start_all()
    pods.wait_for("worker-running", of=worker)
    copy = Copy(pods, worker)  # before there is anything to hold: it would come too late on a busy machine
    gate.touch()
    pods.wait_for("worker-ended", of=0)
    time.sleep(8.0)
    assert {pods.processes[each].poll() for each in {0, worker}} == {None}
    copy.close()
    assert [pods.code(each) for each in (0, 1)] == [0, 0]


def test_it_begins_again_at_each_contact(pods: Pods) -> None:
    pods.script("print('hello')", hold=FOR_LONG)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    until = 0.0
    for _ in range(3):
        told = json.loads(pods.order(0, "fetch").stdout)
        assert told["until"] > until
        until = told["until"]
    assert pods.order(0, "release").returncode == 0
    assert pods.code(0) == 0


def test_a_release_waits_for_another_client_that_fetches(pods: Pods) -> None:
    pods.script("print('hello')", workers=2, hold=FOR_LONG)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    for client in ("a", "b"):
        for worker in (0, 1):
            assert pods.order(worker, "fetch", json.dumps({"client": client, "seconds": 300})).returncode == 0
    assert pods.order(0, "release", json.dumps({"client": "a"})).returncode == 0
    time.sleep(2.0)
    assert [process.poll() for process in pods.processes.values()] == [None, None]
    for worker in (1, 0):
        assert pods.order(worker, "fetch", json.dumps({"client": "b", "seconds": 0})).returncode == 0
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]


@pytest.mark.parametrize("worker", [0, 1])
def test_a_release_waits_for_a_copy(pods: Pods, worker: int) -> None:
    pods.script("print('hello')", workers=2, hold=FOR_LONG, heartbeat=0.2)
    pods.start_all()
    pods.wait_for("worker-ended", of=0)
    copy = Copy(pods, worker)
    assert pods.order(0, "release").returncode == 0
    time.sleep(2.0)
    assert {pods.processes[each].poll() for each in {0, worker}} == {None}
    copy.close()
    assert [pods.code(each) for each in (0, 1)] == [0, 0]


# Stop

SAVES = """
import signal, sys, time
def save(*_):
    print("saving", flush=True)
    time.sleep(float(sys.argv[1]) if sys.argv[1:] else 0)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
"""


@pytest.mark.parametrize("python", ["3.8", None])
@pytest.mark.parametrize("told", [0, 1])
def test_stop(pods: Pods, told: int, python: str | None) -> None:
    """To the leader, or to any member, who passes it on; the ranks may save."""
    interpreter = need_python(python) if python else None
    pods.script(SAVES + UP, workers=2)
    pods.start_all()
    pods.wait_up(0, 1)
    done = pods.order(
        told, "stop", '{"reason": "enough"}', **({"python": interpreter} if interpreter else {})
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, {"ok": True, "over": False})
    assert [pods.code(worker) for worker in (0, 1)] == [RUN_OVER, 0]
    assert pods.said(0) == pods.said(1) == ["up", "saving", "saved"]
    words = pods.last_words()
    assert (words["outcome"], words["reason"], words["exit_code"]) == ("stopped", "enough", 143)


def test_stop_now_gives_nobody_time(pods: Pods) -> None:
    pods.script("import signal\nsignal.signal(15, signal.SIG_IGN)\n" + UP, workers=2, grace=FOR_LONG)
    pods.start_all()
    pods.wait_up(0, 1)
    assert pods.order(0, "stop", '{"reason": "gently"}').returncode == 0
    pods.wait_for("stopping")
    time.sleep(0.5)
    assert pods.processes[0].poll() is None
    assert pods.order(0, "stop", '{"reason": "at once", "now": true}').returncode == 0
    assert [pods.code(worker) for worker in (0, 1)] == [RUN_OVER, 0]
    assert pods.last_words()["reason"] == "gently"  # the first to say so


def test_stop_while_the_gang_gathers(pods: Pods) -> None:
    pods.script(UP, workers=2, hold=FOR_LONG)
    pods.start(0)
    pods.wait_for("worker-started")
    assert pods.order(0, "stop").returncode == 0
    assert pods.code(0) == RUN_OVER  # nothing was made that could be fetched: it does not wait
    assert pods.last_words()["outcome"] == "stopped"


def test_stop_to_a_member_without_a_leader(pods: Pods) -> None:
    pods.script(UP, workers=2)
    pods.start(1)
    wait_until((pods.place(1) / "state" / "c").exists, "the socket")
    done = pods.order(1, "stop")
    assert done.returncode == 1
    assert done.stderr == "worker 1 does not reach worker 0, which leads\n"


# The talk itself


def test_refusals(pods: Pods) -> None:
    pods.script(UP, workers=2)
    pods.start_all()
    pods.wait_up(0, 1)
    assert json.loads(pods.order(0, "fetch").stdout) == {"ok": True, "until": None}
    refused = pods.order(0, "release")
    assert (refused.returncode, refused.stderr) == (1, "the run is not over yet\n")


def test_the_socket_is_for_its_user_alone(pods: Pods) -> None:
    pods.script(UP)
    pods.start(0)
    path = pods.place(0) / "state" / "c"
    pods.wait_up(0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


AS_NOBODY = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(path)
            print("connected")
        except OSError as error:
            print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_cannot_reach_the_socket(pods: Pods) -> None:
    """Not through its folder, and not where the folder is open to all, as when two containers share one."""
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        shared.chmod(0o777)
        pods.script(UP, control=str(shared / "c"))
        pods.start(0)
        pods.wait_up(0)
        assert control.main([str(shared / "c"), "fetch"]) == 0
        words = [sys.executable, "-I", "-c", AS_NOBODY, str(shared / "c")]
        tried = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert (tried.stdout, tried.stderr) == ("PermissionError\n", "")
    finally:
        shutil.rmtree(shared)


def test_a_stale_socket_is_replaced(pods: Pods) -> None:
    """An agent was killed here before."""
    folder = pods.folder / "shared"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "c"))
    pods.script(UP, control=str(folder / "c"))
    pods.start(0)
    pods.wait_up(0)
    assert control.main([str(folder / "c"), "fetch"]) == 0


def test_a_socket_that_cannot_be_made_is_told_and_the_run_goes_on(pods: Pods) -> None:
    pods.script("print('hello')", control=str(pods.folder / ("x" * 120)))
    pods.start(0)
    assert pods.code(0) == 0
    (note,) = [event["reason"] for event in pods.events() if event["kind"] == "note"]
    assert note.startswith("worker 0 takes no orders: ")


@pytest.mark.parametrize("seed", range(4))
def test_garbage_on_the_socket(pods: Pods, seed: int) -> None:
    chance = random.Random(seed)
    pods.script(UP)
    pods.start(0)
    pods.wait_up(0)
    path = str(pods.place(0) / "state" / "c")
    pieces = [
        chance.randbytes(chance.randrange(1, 5000)),
        b"\n" * 500,
        b"{" * 200_000,
        b'{"order": "dance"}\n',
        b'{"order": ["stop"]}\n',
        b'["stop"]\n',
        b'{"order": "release", "x": "' + b"y" * 100_000 + b'"}\n',
        b'{"order": "fetch"}\n' * 50,
        b"{}\n{}\n",
    ]
    crowd = []
    for piece in chance.sample(pieces * 4, len(pieces) * 4):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        sock.settimeout(5)
        with contextlib.suppress(OSError):
            sock.sendall(piece)
        if chance.random() < 0.5:
            crowd.append(sock)  # held open, and never read from
        else:
            sock.close()
    assert pods.order(0, "fetch").returncode == 0
    assert pods.order(0, "stop", '{"now": true}').returncode == 0
    assert pods.code(0) == RUN_OVER
    for sock in crowd:
        sock.close()


@pytest.mark.parametrize(
    "words", [[], ["x"], ["x", "dance"], ["x", "stop", "{"], ["x", "stop", "[]"], ["x", "stop", "{}", "more"]]
)
def test_orders_that_make_no_sense(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert control.main(words) == 2
    assert capsys.readouterr().err


def test_nobody_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert control.main([str(tmp_path / "nothing"), "fetch"]) == 2
    assert "does not answer" in capsys.readouterr().err
