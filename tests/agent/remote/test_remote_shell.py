"""The remote shell that a launcher finds: commands on other workers, through their agents."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.conftest import AGENT, Agents
from tests.agent.pods import Pods
from tests.agent.remote.launched import describe, lines, start, start_all, verdict
from tests.conftest import PATIENCE, wait_until

from echelon.agent.remote.shell_program import line_of, split
from echelon.frameworks.mpi import launch_once


@pytest.fixture
def shell(agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Have worker 0 run a shell script, to its end or (`wait=False`) beside the test."""

    def run(script: str, *, wait: bool = True, **more: object) -> None:
        path = tmp_path / "launch.sh"
        path.write_text(script)
        describe(agents, launch_once(["sh", str(path)]), **more)
        start_all(agents, monkeypatch)
        if wait:
            verdict(agents)

    return run


def test_a_command_runs_on_the_worker_that_is_named(agents: Agents, shell: Callable[..., None]) -> None:
    shell(
        "for host in localhost worker-1 me@worker-2 127.0.0.3; do\n"
        "  ssh -x -o Something=no -p 22 $host 'echo' '$ECHELON_WORKER' 'in' '$(basename $PWD)'\n"
        "done\n"
    )
    assert agents.verdict()["outcome"] == "succeeded"
    here = agents.folder.name
    assert [line for _, _, line in lines(agents)] == sorted(f"{each} in {here}" for each in "0122")


def test_input_output_and_exit_code_go_through(agents: Agents, shell: Callable[..., None]) -> None:
    shell(
        "head -c 5000000 /dev/zero | ssh worker-1 cat | wc -c\n"
        "echo words | ssh worker-2 'cat >&2; exit 7'\n"
        "echo code $?\n"
        "ssh worker-2 'kill -9 $$' </dev/null\n"
        "echo code $?\n"
    )
    assert [line for _, _, line in lines(agents)] == ["5000000", "code 137", "code 7", "words"]


def test_a_signal_reaches_the_command(agents: Agents, shell: Callable[..., None]) -> None:
    shell(
        "ssh worker-1 'trap \"echo caught; exit 3\" TERM; touch ready; while :; do sleep 0.05; done' &\n"
        "while [ ! -e ready ]; do sleep 0.05; done\n"
        "kill -TERM $!; wait $!; echo code $?\n"
    )
    assert {line for _, _, line in lines(agents)} >= {"caught", "code 3"}


def test_a_host_that_is_no_worker_is_left_to_the_real_ssh(
    agents: Agents, shell: Callable[..., None], tmp_path: Path
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "ssh").write_text("#!/bin/sh\necho the real one: $*\n")
    (real / "ssh").chmod(0o755)
    shell(
        "stand_in=$(command -v ssh)\n"
        f"PATH=/nowhere:{real} $stand_in -p 22 elsewhere true\n"
        "PATH=/nowhere $stand_in worker-9 true; echo $?\n"
    )
    assert [line for _, _, line in lines(agents)] == [
        "255",
        "the real one: -p 22 elsewhere true",
        "worker-9 is not a worker of this run, and there is no other ssh here",
    ]


def test_a_command_is_told_where_a_moved_open_mpi_is(agents: Agents, shell: Callable[..., None]) -> None:
    """Unless its worker knows it."""
    shell(
        "OPAL_PREFIX='/opt/my mpi' ssh worker-1 'echo \"at $OPAL_PREFIX\"'\n"
        "ssh worker-1 'echo \"at ${OPAL_PREFIX-nowhere}\"'\n"
    )
    assert [line for _, _, line in lines(agents)] == ["at /opt/my mpi", "at nowhere"]
    line = line_of(["echo", "$OPAL_PREFIX"], {"OPAL_PREFIX": "/opt/theirs"})
    known = {"OPAL_PREFIX": "/opt/own"}
    assert subprocess.check_output(["sh", "-c", line], env=known, text=True) == "/opt/own\n"


def test_every_worker_has_the_shell_and_only_worker_0_reaches_the_others(pods: Pods) -> None:
    """Daemons of Open MPI 4 look for the shell that they are told of, and end where it is not."""
    script = (
        "ssh worker-1 'test -x \"$OMPI_MCA_plm_rsh_agent\" && echo there'\n"
        "ssh worker-1 'PATH=/nowhere \"$OMPI_MCA_plm_rsh_agent\" worker-0 true; echo $?'\n"
    )
    made = launch_once(["sh", "-c", script])
    pods.describe(
        *made.argv,
        workers=2,
        launch={"per": "leader", "wiring": dict(made.wiring), "files": dict(made.files)},
    )
    pods.start_all()
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert sorted(pods.said(0)) == [
        "255",
        "only worker 0 of a run reaches its other workers, and there is no other ssh here",
        "there",
    ]


def test_what_a_launcher_leaves_behind_is_ended(agents: Agents, shell: Callable[..., None]) -> None:
    shell(
        "ssh worker-1 'echo $$ > pid; setsid sleep 600 & echo $! > orphan; exec sleep 600' &\n"
        "while [ ! -s pid ] || [ ! -s orphan ]; do sleep 0.05; done\n"
    )
    assert agents.verdict()["outcome"] == "succeeded"
    for name in ("pid", "orphan"):
        assert not Path("/proc", (agents.folder / name).read_text().strip()).exists()


def test_a_worker_that_is_lost_is_the_cause(agents: Agents, shell: Callable[..., None]) -> None:
    shell("ssh worker-2 'touch ready; exec sleep 600'\n", wait=False)
    wait_until((agents.folder / "ready").exists, "the command on worker 2")
    agents.processes[2].kill()
    cause = verdict(agents)["cause"]
    assert (cause["kind"], cause["worker"]) == ("worker-lost", 2)


def test_a_launcher_that_fails_is_named_as_such(agents: Agents, shell: Callable[..., None]) -> None:
    shell("echo no such host >&2; exit 5\n")
    cause = agents.verdict()["cause"]
    assert (cause["kind"], cause["rank"], cause["exit_code"]) == ("launcher", None, 5)
    assert cause["summary"] == "the launcher exited with code 5: no such host"


def test_a_restart_has_a_new_launcher(
    agents: Agents, shell: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell(
        "ssh worker-1 'echo $ECHELON_WORKER $ECHELON_RESTART'\n"
        "while [ $ECHELON_RESTART = 0 ]; do sleep 0.05; touch waits; done\n",
        wait=False,
        restarts=1,
    )
    wait_until((agents.folder / "waits").exists, "the first launcher")
    agents.processes[1].kill()
    agents.processes[1].wait()
    start(agents, monkeypatch, 1, failures=1)
    assert verdict(agents)["outcome"] == "succeeded"
    assert [line for _, _, line in lines(agents)] == ["1 0", "1 1"]


def test_a_stranger_starts_nothing(
    agents: Agents, shell: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever does not know the secret is turned away, even if the socket can be opened."""
    shell("while [ ! -e over ]; do sleep 0.05; done\n", wait=False)
    remote = agents.folder / "remote"
    wait_until((remote / "launcher.sock").exists, "the leader's socket")
    assert remote.stat().st_mode & 0o077 == 0
    (tmp_path / "guess").write_text("not the secret")
    command = [sys.executable, "-I", "-S", str(AGENT), "ssh", str(remote), str(tmp_path / "guess")]
    done = subprocess.run(
        [*command, "worker-1", "touch", "broken-in"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 255
    assert "secret" in done.stderr
    with socket.socket(socket.AF_UNIX) as plain:  # no proof at all
        plain.settimeout(PATIENCE)
        monkeypatch.chdir(remote)
        plain.connect("launcher.sock")
        plain.sendall(b'{"say": "run", "host": "worker-1", "line": "touch broken-in"}\n')
        while plain.recv(4096):
            pass  # its question, then the end
    (agents.folder / "over").touch()
    assert verdict(agents)["outcome"] == "succeeded"
    assert not (agents.folder / "broken-in").exists()


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["worker-1", "prted", "--x"], "worker-1", ["prted", "--x"]),
        (["-x", "-o", "A=b", "-p22", "me@worker-1", "ls"], "worker-1", ["ls"]),
        (["-l", "me", "--", "worker-1", "-n"], "worker-1", ["-n"]),
        (["-x", "worker-1", "-o", "A=b", "true", "-o"], "worker-1", ["true", "-o"]),
        ([], "", []),
    ],
)
def test_the_arguments_of_ssh(words: list[str], host: str, command: list[str]) -> None:
    assert split(words) == (host, command)
