"""`echelon exec` on this machine: a rank's environment, its folder, exit codes, a shell on a terminal."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import wait_for
from tests.cli.terminal import Terminal

Call = Callable[..., subprocess.CompletedProcess[str]]
SHOW = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"
DUMP = """
    import json, os, pathlib, time
    out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
    rank = os.environ["ECHELON_RANK"]
    (out / f"env-{rank}.tmp").write_text(json.dumps(dict(os.environ)))
    (out / f"env-{rank}.tmp").rename(out / f"env-{rank}")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""


@pytest.fixture
def run(call: Call, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of two workers with two ranks each, which goes on."""
    monkeypatch.setenv("TOKEN", "hush-7391-hush")
    monkeypatch.setenv("OF_THE_SUBMISSION", "yes")
    monkeypatch.setenv("SHELL", "/bin/sh")
    write("dump.py", DUMP)
    words = ["-n", "2", "--procs", "2", "--name", "fm", "--framework", "torch", "--secret", "TOKEN"]
    assert call("run", "-d", *words, "--env", "MINE=1", "dump.py").returncode == 0
    wait_for(*(f"runs/fm/env-{rank}" for rank in range(4)))


@pytest.mark.parametrize(("choice", "rank"), [([], 0), (["--worker", "1"], 2), (["--rank", "3"], 3)])
def test_the_environment_and_the_folder_are_the_rank_s(
    cli: Call, run: None, monkeypatch: pytest.MonkeyPatch, choice: list[str], rank: int
) -> None:
    folder, expected = Path.cwd(), json.loads(Path(f"runs/fm/env-{rank}").read_text())
    assert (expected["RANK"], expected["MINE"], expected["TOKEN"]) == (str(rank), "1", "hush-7391-hush")
    monkeypatch.delenv("OF_THE_SUBMISSION")
    monkeypatch.setenv("OF_THIS_SHELL", "no")
    monkeypatch.setenv("TERM", "vt100")
    monkeypatch.chdir("/")
    done = cli("exec", "fm", *choice, "--", sys.executable, "-c", SHOW)
    assert done.returncode == 0, done.stderr
    found, where = json.loads(done.stdout)
    del expected["ECHELON_RUN_ID"]  # the shell is not part of the run
    assert found.pop("TERM") == "vt100"
    expected.pop("TERM", None)
    for each in (expected, found):
        each.pop("LC_CTYPE", None)  # Python itself sets it in the C locale
        for name in ("COLUMNS", "LINES"):  # of this terminal, as TERM; readline sets them for all children
            each.pop(name, None)
    assert found == expected
    assert where == str(folder)


def test_streams_and_exit_codes(cli: Call, run: None) -> None:
    done = cli("exec", "fm", "--", "sh", "-c", "cat; echo oh >&2; exit 7", input="hello")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello", "oh\n")
    done = cli("exec", "fm", "--", "no-such-command")
    assert (done.returncode, done.stderr) == (127, "no-such-command: No such file or directory\n")
    done = cli("exec", "fm", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137


def test_ranks_that_are_none(call: Call, run: None) -> None:
    for words, problem in (
        (["--worker", "2"], "worker: 2 is not a worker of run 'fm'"),
        (["--rank", "4"], "rank: 4 is not a rank of run 'fm'"),
        (["--worker", "0", "--rank", "2"], "rank: 2 is not of worker 0"),
    ):
        done = call("exec", "fm", *words, "--", "true")
        assert (done.returncode, problem in done.stderr) == (110, True), done.stderr
    assert call("exec", "fn", "--", "true").returncode == 111


def test_what_is_kept_is_private_without_secrets_and_goes_with_the_rank(
    call: Call, run: None, home: Path
) -> None:
    kept = sorted((home / "runs" / "fm").glob("rank-*.environment.json"))
    assert len(kept) == 4
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "hush-7391-hush" not in path.read_text()
    Path("go").touch()
    assert call("wait", "fm").returncode == 0
    assert not list((home / "runs" / "fm").glob("rank-*.environment.json"))
    done = call("exec", "fm", "--", "true")
    assert done.returncode == 119
    assert "rank 0 of run 'fm' does not run" in done.stderr
    assert "echelon status fm" in done.stderr


def test_a_run_that_waits_has_no_rank(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.cli.nvidia_smi import StandIn

    smi = StandIn(tmp_path / "driver")
    smi.show(1)
    monkeypatch.setenv("PATH", f"{smi.folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert call("run", "-d", "--gpus", "1", "--name", "first", "--", "sleep", "600").returncode == 0
    assert call("run", "-d", "--gpus", "1", "--name", "second", "--", "sleep", "600").returncode == 0
    done = call("exec", "second", "--", "true")
    assert (done.returncode, "run 'second' has not started" in done.stderr) == (119, True)


def test_a_shell_on_a_terminal(terminal: Callable[..., Terminal], run: None) -> None:
    """Ctrl-C is for what runs in the shell, and not for `exec`."""
    shell = terminal("exec", "fm", "--rank", "1")
    prompt = r"(?s)%s.*[#$] $"
    shell.expect(prompt % "")
    shell.type("echo rank=$RANK\r")
    shell.expect(prompt % "rank=1")
    shell.type("sh -c 'echo begun; exec sleep 1000'\r")
    shell.expect("(?<!echo )begun")  # by a child: the shell itself is between two commands for a moment
    shell.type("\x03")
    shell.expect(prompt % r"\^C")
    shell.type("echo code=$?\r")
    shell.expect(prompt % "code=130")
    shell.type("exit 5\r")
    assert shell.end() == 5
