"""Why a rank failed, from what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE

from echelon.agent.ranks.report import (
    describe_end,
    find_crash,
    find_error,
    find_hint,
    is_consequence,
    last_lines,
    make_end,
    make_hosted,
    make_launchers,
    read_error_file,
)
from echelon.agent.task import RUN_OVER

CHAINED = b"""Traceback (most recent call last):
  File "a.py", line 1, in <module>
    int("x")
ValueError: invalid literal

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
    raise RuntimeError("no data") from None
RuntimeError: no data
[W socket.cpp:752] a warning that comes after
"""


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        (CHAINED, "RuntimeError: no data"),
        (b"Traceback (most recent call last):\n  x\nKeyError: 'a'", "KeyError: 'a'"),
        (b"ls: cannot access 'x': No such file\n\n", "ls: cannot access 'x': No such file"),
        (
            b"[rank1]: Traceback (most recent call last):\n[rank1]:   File 'x'\n[rank1]: KeyError: 'a'",
            "KeyError: 'a'",
        ),
        (b"", None),
        (b"\xff\xfe", "\\xff\\xfe"),
        (
            b'  File "a.py", line 1\n    x ==\n        ^\nSyntaxError: invalid syntax\n',
            "SyntaxError: invalid syntax",
        ),
    ],
)
def test_the_error_in_stderr(stderr: bytes, error: str | None) -> None:
    assert find_error(stderr) == error


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("colours", [{}, {"FORCE_COLOR": "1"}])
@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("raise ValueError('bad luck')", "ValueError: bad luck"),
        ("try: 1 / 0\nexcept ZeroDivisionError: {}['x']", "KeyError: 'x'"),
        ("exec('x ==')", "SyntaxError: invalid syntax"),
    ],
)
def test_the_error_below_the_box_that_rich_draws(
    program: str, error: str, colours: dict[str, str], encoding: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from rich.traceback import install\ninstall()\n{program}"],
        env={**os.environ, **colours, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert b"most recent call last" in done.stderr
    assert find_error(done.stderr) == error


@pytest.mark.parametrize(
    ("error", "in_pod", "words"),
    [
        (None, False, None),
        ("ValueError: No module named 'torch'", False, None),
        ("ModuleNotFoundError: No module named 'torch.distributed'", False, "environment of /bin/python3;"),
        ("ModuleNotFoundError: No module named 'torch'", True, "--pip torch"),
        (
            "ModuleNotFoundError: No module named 'distutils.core'",
            True,
            "distutils is gone from newer Pythons",
        ),
        ("ModuleNotFoundError: No module named 'distutils'", True, "--pip setuptools"),
        ("ModuleNotFoundError: No module named 'imp'", False, "--python chooses one that has it"),
        ("ModuleNotFoundError: No module named 'no_such'", False, "/bin/python3; --python runs"),
        ("ModuleNotFoundError: No module named 'pytest'", False, f"--python {sys.executable}"),
        ("RuntimeError: nccl2 requires at least one CUDA device", False, 'init_process_group("gloo")'),
        (
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            True,
            "--gpus N asks for some",
        ),
        ("AssertionError: Torch not compiled with CUDA enabled", False, "finds no GPU here;"),
        ("RuntimeError: No CUDA GPUs are available", False, "finds no GPU here;"),
        ("bdb.BdbQuit", False, "-n 1"),
        ("EOFError: EOF when reading a line", False, "input() needs somebody who types"),
        ("EOFError: Ran out of input", False, None),
    ],
)
def test_what_helps_against_it(error: str | None, in_pod: bool, words: str | None) -> None:
    hint = find_hint(error, "/bin/python3", in_pod)
    assert hint is None if words is None else words in (hint or "")


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (-9, None, "was killed by SIGKILL: out of memory?"),
        (-11, "anything", "was killed by SIGSEGV: a crash in native code"),
        (-15, None, "was killed by SIGTERM"),
        (3, None, "exited with code 3"),
        (1, "ValueError: boom", "exited with code 1: ValueError: boom"),
        (-200, None, "was killed by signal 200"),
    ],
)
def test_an_end_in_words(code: int, error: str | None, words: str) -> None:
    assert describe_end(code, error) == words


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms",
        "tensorflow.errors_impl.UnavailableError: Collective ops is aborted by: Socket closed",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.",
    ],
)
def test_what_frameworks_say_when_a_peer_is_gone_is_a_consequence(error: str) -> None:
    assert make_end(0, 0, 1, error, [], 0.0)["consequence"]


@pytest.mark.parametrize(
    "error", ["ValueError: boom", "torch.OutOfMemoryError: CUDA out of memory", "KeyError: 'peer'", None]
)
def test_what_a_rank_did_itself_is_not(error: str | None) -> None:
    assert not make_end(0, 0, 1, error, [], 0.0)["consequence"]


def test_torchs_error_file(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    assert read_error_file(str(path)) is None
    path.write_text(
        json.dumps({"message": {"message": "ValueError: boom\nmore", "extraInfo": {"timestamp": "1"}}})
    )
    assert read_error_file(str(path)) == "ValueError: boom"
    path.write_text(json.dumps({"message": "plain"}))
    assert read_error_file(str(path)) == "plain"
    for garbage in ("", "[]", "{", '{"message": []}', "null"):
        path.write_text(garbage)
        assert read_error_file(str(path)) is None


def test_last_lines_are_few_short_and_as_a_terminal_shows_them() -> None:
    lines = last_lines(b"first\n" * 50 + b"0%\r50%\r100%\r\n" + b"x" * 5000 + b"\n\n")
    assert len(lines) == 20
    assert lines[-2:] == ["100%", "x" * 400]


def test_an_exception_group_is_named_without_its_frame() -> None:
    stderr = b"""  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 3, in <module>
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "a.py", line 2, in f
    | ValueError: boom
    +------------------------------------
"""
    assert find_error(stderr) == "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)"


def test_a_rank_that_said_nothing_has_no_last_lines() -> None:
    assert last_lines(b"") == last_lines(b"\n\n") == []


@pytest.mark.parametrize(
    ("code", "error", "tail", "cut_off", "follows"),
    [
        (1, "ValueError: boom", b"ValueError: boom\n", False, False),
        (-9, None, b"", False, False),  # killed, and its starter has reported it
        (-9, None, b"", True, True),  # with its starter, by the launcher
        (-15, None, b"", False, True),
        (9, None, b"", False, False),
        (14, None, b"", False, True),  # Open MPI's library, when a peer has gone: without a word
        (15, "(unknown)", b"Fatal error in internal_Allreduce: Other MPI error, error stack:\n", False, True),
    ],
)
def test_which_ends_of_a_launchers_ranks_are_consequences(
    code: int, error: str | None, tail: bytes, cut_off: bool, follows: bool
) -> None:
    end = make_end(3, 1, code, error, [], 0.0)
    make_hosted(end, tail, cut_off)
    assert end["consequence"] is follows


def test_a_launcher_is_no_rank() -> None:
    end = make_end(0, 0, 1, "no such host", [], 0.0)
    make_launchers(end, 1, apart=True)
    assert (end["rank"], end["consequence"]) == (None, True)
    assert end["summary"] == "the launcher exited with code 1: no such host"


CRASH = b"""terminate called after throwing an instance of 'c10::Error'
  what():  CUDA error: an illegal memory access was encountered
Fatal Python error: Aborted

Current thread 0x00007f1 (most recent call first):
  File "/opt/torch/nn/functional.py", line 21 in linear
  File "/home/ann/train.py", line 3 in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/lib/libc.so.6", at abort+0x12 [0x7f]

Extension modules: numpy, torch (total: 2)
"""


def test_where_a_rank_crashed_in_native_code() -> None:
    place = find_crash(CRASH)
    assert place == "linear (nn/functional.py:21)"
    error = find_error(CRASH)
    assert error == "c10::Error: CUDA error: an illegal memory access was encountered"
    assert describe_end(-6, error, place) == f"was killed by SIGABRT, in {place} ({error})"
    assert describe_end(-6, None) == "was killed by SIGABRT: an assertion in native code"
    assert describe_end(-11, None, place) == f"was killed by SIGSEGV: a crash in native code, in {place}"
    assert find_crash(b'Fatal Python error: none of a signal\n  File "a", line 1 in b\n') is None
    assert find_crash(b"") is None


# BUG: the last line before the crash was named, `frame #4: <unknown function> + 0x129ecc`, and had no hint.
def test_nccl_s_watchdog_in_one_short_line() -> None:
    """As recorded on an H200."""
    said = (Path(__file__).parent / "watchdog.txt").read_bytes()
    error = find_error(said)
    assert (
        error == "c10::DistBackendError: Watchdog caught collective operation timeout: ALLREDUCE 6, after 8 s"
    )
    assert "--stall 10m names it" in (find_hint(error, "/bin/python3", False) or "")
    end = make_end(3, 0, -6, error, [], 0.0)
    assert end["gave_up"]
    assert not end["consequence"], "the ranks that wait in vain are the first to fail"


def test_which_failures_are_of_a_collective_that_was_given_up() -> None:
    for error in ("ValueError: boom", "RuntimeError: Connection reset by peer", None):
        assert not make_end(0, 0, 1, error, [], 0.0)["gave_up"]


OF_JAX = b"""E1118 19:59:24.4 6618 coordination_service_agent.cc:289] Polled an error from another task
F1118 19:59:24.456920    6618 client.h:80] Terminating process because the JAX distributed service detected \
fatal errors. This most likely indicates that another task died. absl::Status: INTERNAL: barrier has failed.
*** Check failure stack trace: ***
    @     0x7ff7ab6a71f5  (unknown)
Fatal Python error: Aborted

Extension modules: jaxlib.cpu_feature_guard (total: 1)
"""


# BUG: the last line before the crash was named, an address in a stack, and no consequence was seen in it.
def test_jax_says_why_it_aborts_and_that_another_was_first() -> None:
    error = find_error(OF_JAX)
    assert error == "Terminating process because the JAX distributed service detected fatal errors"
    assert is_consequence(-signal.SIGABRT, error)


def test_a_rank_says_where_it_crashed(agents: Agents, write_script: Callable[[str], str]) -> None:
    script = write_script("import ctypes\ndef inner():\n    ctypes.string_at(0)\ninner()\n")
    agents.describe(sys.executable, script)
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == RUN_OVER
    cause = agents.verdict()["cause"]
    assert re.fullmatch(
        r"rank 0 was killed by SIGSEGV: .*, in string_at \(ctypes/\S+:\d+\)", cause["summary"]
    )
    assert any("in inner" in line for line in cause["tail"])


MEMORY = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a
total capacity of 79.15 GiB of which 3.25 GiB is free. Process 12 has 75.90 GiB memory in use. Of the
allocated memory 74.00 GiB is allocated by PyTorch. If reserved but unallocated memory is large try setting
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."""
MEMORY_ONCE = """RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 10.76 GiB total
capacity; 9.00 GiB already allocated; 512.00 MiB free; 9.50 GiB reserved in total by PyTorch) If reserved
memory is"""
MEMORY_BRIEF = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. More."


@pytest.mark.parametrize(
    ("said", "short"),
    [
        (MEMORY, "tried to allocate 20.00 GiB; GPU 0 has 79.15 GiB, of which 3.25 GiB is free"),
        (MEMORY_ONCE, "tried to allocate 2.00 GiB; GPU 1 has 10.76 GiB, of which 512.00 MiB is free"),
        (MEMORY_BRIEF, "tried to allocate 1.00 GiB"),
    ],
)
def test_a_gpu_without_memory_in_one_short_line(said: str, short: str) -> None:
    line = said.replace("\n", " ")  # as PyTorch writes it
    kind = line.partition(":")[0]
    found = find_error(b"Traceback (most recent call last):\n  x\n" + line.encode())
    assert found == f"{kind}: CUDA out of memory, {short}"


INWARD = """Traceback (most recent call last):
  File "c10d_rendezvous_backend.py", line 160, in _create_tcp_store
torch.distributed.DistNetworkError: The client socket has timed out after 60000ms

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "torchrun", line 8, in <module>
RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.
"""


def test_an_exception_that_points_to_an_inner_one(tmp_path: Path) -> None:
    inner = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms"
    assert find_error(INWARD.encode()) == inner
    outer = INWARD.splitlines()[-1]
    assert find_error(f"Traceback (most recent call last):\n  x\n{outer}".encode()) == outer
    path = tmp_path / "error.json"
    path.write_text(json.dumps({"message": {"message": outer, "extraInfo": {"py_callstack": INWARD}}}))
    assert read_error_file(str(path)) == inner
    path.write_text(json.dumps({"message": {"message": outer}}))
    assert read_error_file(str(path)) == outer


def test_no_package_is_named_for_what_left_the_standard_library() -> None:
    for gone in ("distutils", "imp", "cgi"):
        hint = find_hint(f"ModuleNotFoundError: No module named '{gone}'", "/bin/python3", True) or ""
        assert f"--pip {gone}" not in hint


RAISED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/ann/train.py", line 8, in <module>
[rank1]:     raise ValueError("bad luck")
[rank1]: ValueError: bad luck
"""
PEER = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/ann/train.py", line 9, in <module>
[rank0]:     dist.all_reduce(t)
[rank0]: RuntimeError: Read error [127.0.0.1]:28323: Connection reset by peer
"""
CRASHED = """Fatal Python error: Segmentation fault

Current thread 0x00007f2e (most recent call first):
  File "/home/a.py", line 3 in f
  File "/home/a.py", line 9 in <module>
"""
TORCHRUN = """W1119 23:54:16.243000 20132 torch/distributed/elastic/multiprocessing/api.py:1028] Sending
E1119 23:54:16.818000 20132 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)
Traceback (most recent call last):
  File "/env/bin/torchrun", line 10, in <module>
    sys.exit(main())
             ^^^^^^
  File "/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 386, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-19_23:54:16
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 22807)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 22807
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-19_23:54:16
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 22816)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


# BUG: "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", and nothing more.
@pytest.mark.parametrize(
    ("wrote", "code", "error"),
    [
        (RAISED, 1, "ValueError: bad luck (rank 1 of torchrun's)"),
        (RAISED + PEER, 1, "ValueError: bad luck (rank 1 of torchrun's)"),
        (RAISED.replace("[rank1]: ", ""), 1, "ValueError: bad luck (rank 1 of torchrun's)"),
        (PEER, -9, "rank 1 of torchrun's was killed by SIGKILL: out of memory?"),
        ("", 3, "rank 1 of torchrun's exited with code 3"),
        (
            CRASHED,
            -11,
            "rank 1 of torchrun's was killed by SIGSEGV: a crash in native code, in f (home/a.py:3)",
        ),
    ],
)
def test_the_error_of_the_rank_that_failed_first_below_torchrun(wrote: str, code: int, error: str) -> None:
    """As torchrun of torch 2.15 writes it, shortened."""
    text = wrote + TORCHRUN.format(code=code)
    assert find_error(text.encode()) == error
