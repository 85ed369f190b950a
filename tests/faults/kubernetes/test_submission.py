"""SIGKILL to `echelon run` at every step of a submission. Each time the same command, said again, takes it up
or says that the run is there; `rm` leaves nothing of it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.gate import Gate, Moment, check_writes
from tests.faults.kubernetes.terminal import Terminal, kubeconfig_in

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FEW, MANY = 2, 50
# What a submission changes, in this order: the record; at the same time code, the run's secret and its name
# in the network; then the Job, its keeper, and the record belongs to the Job.
WRITES = [
    "POST configmaps",
    "POST configmaps",
    "POST secrets",
    "POST services",
    "POST jobs",
    "POST jobs",  # the keeper's
    "PATCH configmaps",
]
HELLO = "print('hello from', __file__, flush=True)"


@pytest.fixture
def gate(namespace: Kubectl, own_cluster: object, tmp_path: Path) -> Iterator[Gate]:
    with Gate(namespace, tmp_path) as opened:
        yield opened


def submission(terminal: Terminal, name: str, workers: int = 2) -> tuple[str, ...]:
    words = ("run", "-d", "--keep", "24h:10Mi", "--linger", "1m", "--name", name, "-n", str(workers))
    return (*words, "--image", terminal.image, "hello.py")


def check_repeated(terminal: Terminal, name: str) -> None:
    """Say the same command again: it is taken up, unless it had started."""
    started = terminal.kubectl.find("job", name) is not None
    again = terminal.call(*submission(terminal, name, workers=1))
    if started:
        assert f"a run named {name!r} exists" in again.stderr, again.stderr
    else:
        assert (again.returncode, again.stdout) == (0, f"{name}\n"), again.stderr


def check_end(terminal: Terminal, name: str, workers: int = 2) -> None:
    ended = terminal.call("wait", name, "--timeout", "2m")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    output = terminal.call("logs", name)
    said = "hello from /echelon/space/code/hello.py"
    expected = [said] if workers == 1 else [f"[{rank}] {said}" for rank in range(workers)]
    assert sorted(output.stdout.splitlines()) == expected


def submit_and_die(terminal: Terminal, gate: Gate, name: str, deadly: tuple[int, Moment] | None) -> list[str]:
    """Submit through the gate, and be killed there; the writes that were made or tried. One worker does: a
    submission writes the same for any number, and there are many.
    """
    gate.watch(deadly)
    command = terminal.start(*submission(terminal, name, workers=1))
    gate.arm(command.process.kill)
    code = command.wait()
    assert code == (0 if deadly is None else -signal.SIGKILL), command
    return gate.writes


@pytest.fixture
def through(terminal: Terminal, gate: Gate, tmp_path: Path) -> Terminal:
    """The same person, who goes through the gate without knowing."""
    terminal.write("hello.py", HELLO)
    return replace(terminal, kubeconfig=kubeconfig_in(terminal.kubectl, tmp_path / "through-gate", gate.url))


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.soak)])
def test_killed_at_every_write_and_repeated(
    terminal: Terminal, through: Terminal, gate: Gate, moment: Moment
) -> None:
    writes = submit_and_die(through, gate, "whole", None)
    check_writes(writes, WRITES, len(WRITES) - 1)
    names = [f"cut-{number}" for number in range(len(WRITES))]
    for number, name in enumerate(names):
        tried = submit_and_die(through, gate, name, (number, moment))
        check_writes(tried, WRITES, number)
        check_repeated(terminal, name)
    for name in ("whole", *names):
        check_end(terminal, name, workers=1)
    # Whoever came last has put everything in order: nothing outlives the Jobs.
    terminal.kubectl("delete", "job", "whole", *names, "--wait=false")
    for name in names:
        terminal.wait_for_nothing(name)


def test_killed_at_every_write_and_removed(terminal: Terminal, through: Terminal, gate: Gate) -> None:
    """Nobody says it again: `rm` clears away whatever there is, once what seems to go on was stopped."""
    names = [f"cut-{number}" for number in range(len(WRITES))]
    for number, name in enumerate(names):
        submit_and_die(through, gate, name, (number, "after"))
        removed = terminal.call("rm", name)
        if removed.returncode != 0:
            if "not fetched yet" in removed.stderr:  # it was fast, and is over
                settled = terminal.call("get", name)
            else:  # it may still be on its way, as far as anybody can tell
                assert f"`echelon stop {name}` first" in removed.stderr, removed.stderr
                settled = terminal.call("stop", "--now", name)
            assert settled.returncode == 0, settled.stderr
            removed = terminal.call("rm", name)
            assert removed.returncode == 0, removed.stderr
    for name in names:
        terminal.wait_for_nothing(name)


@pytest.mark.parametrize(
    "seed", [*range(FEW), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(FEW, MANY))]
)
def test_killed_at_any_moment(terminal: Terminal, seed: int) -> None:
    """In the foreground, from its first instruction to the end of the run."""
    terminal.write("hello.py", HELLO)
    chance = random.Random(seed)
    command = terminal.train("cut", "-n", "2", "hello.py")
    time.sleep(chance.choice([chance.uniform(0, 1.0), chance.uniform(0.3, 3.0), chance.uniform(0, 8.0)]))
    command.process.kill()
    command.wait()
    again = terminal.call("run", "--name", "cut", "--image", terminal.image, "-n", "2", "hello.py")
    if again.returncode != 0:
        assert "exists" in again.stderr, again.stderr
        check_end(terminal, "cut")
    terminal.check_removal("cut")


def test_two_at_once(terminal: Terminal) -> None:
    """Of two submissions under one name one wins, and the other says so and harms nothing."""
    terminal.write("hello.py", HELLO)
    commands = [terminal.start(*submission(terminal, "twin"), str(number)) for number in range(2)]
    codes = [command.wait() for command in commands]
    assert sorted(code == 0 for code in codes) == [False, True], commands
    loser = next(command for command in commands if command.process.returncode)
    assert "a run named 'twin' exists" in loser.said, loser
    check_end(terminal, "twin")
    terminal.check_removal("twin")


def test_the_same_twice_at_once(terminal: Terminal) -> None:
    """The second may take it for one that was cut off and lend a hand; it is one run all the same."""
    terminal.write("hello.py", HELLO)
    commands = [terminal.start(*submission(terminal, "twin")) for _ in range(2)]
    for command in commands:
        if command.wait() != 0:
            assert "a run named 'twin' exists" in command.said, command
    assert any(command.process.returncode == 0 for command in commands)
    check_end(terminal, "twin")
    assert len(terminal.pods("twin")) == 2
    terminal.check_removal("twin")


def test_interrupted_twice_over(terminal: Terminal) -> None:
    """Ctrl-C while it submits leaves nothing, or a run that was stopped."""
    terminal.write("stays.py", "import time\nprint('hello')\ntime.sleep(120)\n")
    for delay in (0.4, 0.6, 0.8):
        command = terminal.train("cut", "-n", "2", "stays.py")
        time.sleep(delay)
        command.process.send_signal(signal.SIGINT)
        assert command.wait() != 0, command
        if terminal.kubectl.find("configmap", "cut") is not None:
            terminal.check_removal("cut")
        terminal.wait_for_nothing("cut")
