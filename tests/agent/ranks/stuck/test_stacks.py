"""Where a rank is that hangs: the hook that its Python loads, and the words for a report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, need_python, wait_until

from echelon.agent.loop import Loop
from echelon.agent.output.sink import RankLog, Sink, Stream
from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.stuck import stacks

DUMP = b"""epoch 3
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/home/ann/train.py", line 5 in watch
Current thread 0x00007f02 [python] (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/distributed/c10d.py", line 1234 in init_process_group
  File "/env/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/ann/train.py", line 12 in main
  File "/home/ann/train.py", line 20 in <module>
"""


def test_the_place_is_the_call_and_the_line_of_the_users_own_code() -> None:
    assert stacks.find_place(DUMP) == "init_process_group (train.py:12)"


@pytest.mark.parametrize(
    "text", [b"", b"loss 0.1\n", b"Current thread 0x01 (most recent call first):\n", b"\xff\n"]
)
def test_without_a_stack_there_is_no_place(text: bytes) -> None:
    assert stacks.find_place(text) is None


def test_a_stack_of_libraries_alone() -> None:
    text = b'Current thread 0x01 (most recent call first):\n  File "<string>", line 1 in <module>\n'
    assert stacks.find_place(text) == "<module> (<string>:1)"


def start(python: str, folder: Path, program: str, **env: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, [launch.STARTUP, env.pop("PYTHONPATH", "")]))
    (folder / "train.py").write_text(textwrap.dedent(program))
    return subprocess.Popen(
        [python, str(folder / "train.py")],
        env={**os.environ, "PYTHONPATH": path, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("version", ["", "3.8", "3.10", "3.12", "3.13"])
def test_the_script_finds_everything_as_without_it(tmp_path: Path, version: str) -> None:
    """Its path, its environment, and the `sitecustomize` of its environment."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.own = __name__, __file__\n")
    program = """
        import os, sys, sitecustomize
        print(os.environ.get("PYTHONPATH"), any("startup" in each for each in sys.path))
        print(sys.own, sitecustomize.__file__)
    """
    python = need_python(version) if version else sys.executable
    with start(python, tmp_path, program, PYTHONPATH=str(own)) as process:
        out, err = process.communicate(timeout=PATIENCE)
    file = f"{own}/sitecustomize.py"
    assert out.splitlines() == [f"{own} False", f"{('sitecustomize', file)} {file}"], err
    assert err == ""


def test_without_a_path_of_its_own(tmp_path: Path) -> None:
    program = "import os\nprint(os.environ.get('PYTHONPATH'))\n"
    with start(sys.executable, tmp_path, program) as process:
        assert process.communicate(timeout=PATIENCE) == ("None\n", "")


def test_a_sitecustomize_that_fails_fails_as_without_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import nothing_of_that_name\n")
    with start(sys.executable, tmp_path, "print('up')\n", PYTHONPATH=str(tmp_path)) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert out == "up\n"
    assert "nothing_of_that_name" in err


@pytest.mark.parametrize("version", ["", "3.8", "3.13"])
def test_a_python_that_sleeps_tells_where_and_goes_on(tmp_path: Path, version: str) -> None:
    program = """
        import sys, time
        def nap():
            print("up", flush=True)
            time.sleep(0.2)
            sys.stdin.readline()
        nap()
        print("well", flush=True)
    """
    python = need_python(version) if version else sys.executable
    process = start(python, tmp_path, program)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "up\n"
        assert stacks.is_ready(process.pid)
        process.send_signal(stacks.SIGNAL)
        out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("well\n", 0)
    assert (stacks.find_place(err.encode()) or "").startswith("nap (train.py:")


def test_who_does_not_know_the_signal_does_not_get_it(tmp_path: Path) -> None:
    loop = Loop()
    log = RankLog(str(tmp_path / "log"))
    stream = Stream(Sink(loop), log, 0, "e")
    found: list[dict[str, str]] = []
    with subprocess.Popen(["sleep", "600"]) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "the program")
        assert not stacks.is_ready(process.pid)
        stacks.ask(loop, {0: (process.pid, stream)}, found.append)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert found == [{}], "without anybody to ask nothing is waited for"
    assert not stacks.is_ready(process.pid)
    loop.close()
    log.close()


def test_a_rank_that_fails_under_mpi_ends_without_waiting_for_its_peers(tmp_path: Path) -> None:
    """mpi4py waits for them when Python ends; what the script has registered is called before."""
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, sys, types\n"
        "class Finalizes:\n"
        "    def __del__(self): print('finalized')\n"
        "sys.modules['mpi4py.MPI'] = module = types.ModuleType('mpi4py.MPI')\n"
        "module.world = Finalizes()\n"
        "atexit.register(print, 'saved')\n"
        "if sys.argv[1:]: raise ValueError('boom')\n"
    )
    env = {**os.environ, "PYTHONPATH": launch.STARTUP}
    for words, code, printed in (((), 0, "saved\nfinalized\n"), (("fail",), 1, "saved\n")):
        done = subprocess.run(
            [sys.executable, script, *words], env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (code, printed), done.stderr


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/usr/lib/python3.12/pdb.py", True),
        ("/env/lib/python3.12/site-packages/debugpy/server/api.py", True),
        ("/env/lib/python3.12/site-packages/debugpy/_vendored/pydevd/pydevd.py", True),
        ("/home/ann/mypdb.py", False),
        ("/home/ann/debugpy.py", False),
    ],
)
def test_which_ranks_are_in_a_debugger(file: str, expected: bool) -> None:
    assert stacks.is_debugged([("readline", file, "1"), ("step", "/home/ann/train.py", "2")]) is expected
