"""Why a rank failed, from what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.agent.ranks.report import (
    describe_end,
    find_error,
    find_hint,
    last_lines,
    make_end,
    make_hosted,
    make_launchers,
    read_error_file,
)

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


def test_no_package_is_named_for_what_left_the_standard_library() -> None:
    for gone in ("distutils", "imp", "cgi"):
        hint = find_hint(f"ModuleNotFoundError: No module named '{gone}'", "/bin/python3", True) or ""
        assert f"--pip {gone}" not in hint
