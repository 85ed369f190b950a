"""Faults at random while the results of a run come home from a real cluster: the command is killed or stands
still, the API server is away for seconds, a worker's pod is deleted, the leader is evicted, the keeper is
lost, two commands collect at once, each at any moment of the fetch.

Afterwards, once `wait` has nothing more to wait for, every file is at home as its worker wrote it, or the
exit code and the message say of whom some are lost; and after `rm` nothing of the run is in the namespace.
`tests/faults/test_collecting.py` has the same over pods that are folders, a hundred times as often."""

from __future__ import annotations

import functools
import itertools
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from testbed.kubectl import Refused
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Command, Terminal
from tests.faults.kubernetes.test_keeper import keepers
from tests.faults.kubernetes.test_pods import evict, newest_pod
from tests.faults.kubernetes.test_results import arrived
from tests.faults.test_results_home import Fault, at_random

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

Outage = tuple[Callable[[], None], Callable[[], None]]
FAULTS = ("away", "delete", "evict", "keeper", "kill", "stop", "twice")
TAKES = ("delete", "evict", "keeper")  # with these, something may be lost
UNKNOWN, UNREACHABLE, INCOMPLETE = 111, 120, 123
FOR_GOOD = "lost for good"
MOMENTS = 1_000_000  # by which `Fault.after` counts a fetch from its beginning to its end
LATER = 600.0  # seconds for a command that has to wait for an API server, and then for nodes
FILES, SIZE = 4, 6 << 20  # of each worker
WRITES = f"""
import os, random
for number in range({FILES}):
    chance = random.Random(os.environ["ECHELON_RANK"] + "/" + str(number))
    with open(os.environ["ECHELON_OUTPUT"] + f"/part-{{number}}", "wb") as file:
        file.write(chance.randbytes({SIZE}))
print("written", flush=True)
"""
numbers = itertools.count()  # each example has a run of its own, beside what a failed one has left


@functools.cache
def written(worker: int, number: int) -> bytes:
    """What the script writes; again the same, if it has to run again."""
    return random.Random(f"{worker}/{number}").randbytes(SIZE)


@dataclass
class Ending:
    """A run that is over, and the commands that collect its results."""

    terminal: Terminal
    outage: Outage
    name: str
    workers: int
    chance: random.Random
    struck: set[str] = field(default_factory=set)  # kinds of faults that took something away

    @property
    def home(self) -> Path:
        return self.terminal.folder / "runs" / self.name

    def lacking(self) -> set[int]:
        """The workers of whom a file is not at home as it was written."""
        return {worker for worker in range(self.workers) if not self._is_whole(worker)}

    def _is_whole(self, worker: int) -> bool:
        place = self.home / f"worker-{worker}" if worker else self.home
        paths = [place / f"part-{number}" for number in range(FILES)]
        return all(
            path.is_file() and path.read_bytes() == written(worker, number)
            for number, path in enumerate(paths)
        )

    # What goes wrong

    def strike(self, fault: Fault, command: Command) -> None:
        """At the fault's moment of the fetch, or when the command has ended, if it comes later."""
        moment = self.workers * FILES * SIZE * fault.after // MOMENTS
        wait_until(
            lambda: command.process.poll() is not None or arrived(self.home) >= moment,
            f"{moment} bytes of {self.name}",
            LATER,
        )
        match fault.kind:
            case "away":
                stop, start = self.outage
                stop()
                time.sleep(self.chance.uniform(1, 12))
                start()
            case "stop":
                command.process.send_signal(signal.SIGSTOP)
                time.sleep(self.chance.uniform(1, 12))
                command.process.send_signal(signal.SIGCONT)
            case "kill":
                command.process.kill()
            case "twice":
                other = self.terminal.start("get", self.name)
                self.check(other.wait(LATER), other.said, over=not self.struck)
            case kind:
                with suppress(Refused, IndexError):  # what is gone cannot be taken away
                    self._take(kind)
                    self.struck.add(kind)

    def _take(self, kind: str) -> None:
        if kind == "evict":
            evict(self.terminal, self.name, 0)
            return
        if kind == "delete":
            pod = newest_pod(self.terminal, self.name, self.chance.randrange(self.workers))
        else:
            pod = str(keepers(self.terminal, self.name)[-1]["metadata"]["name"])
        self.terminal.kubectl("delete", "pod", pod, "--now", "--wait=false")

    # What is said

    def check(self, code: int, said: str, *, over: bool = True) -> None:
        """What a command says of the results is true. Of a run that may not be `over`, since the pod that
        knew its end was taken away and the script runs again, it says that it has what is there now.
        """
        lacking = self.lacking()
        if code == 0:
            assert not lacking or not over, f"{self.name}: it exits with 0, and lacks {lacking}: {said}"
        elif code == INCOMPLETE:
            told = {int(number) for number in re.findall(r"worker (\d+): ", said)}
            assert lacking <= told or "were not fetched: " in said, said
            assert self.struck or FOR_GOOD not in said, f"nothing was taken away: {said}"
        elif code != UNREACHABLE:
            assert self.struck, f"{self.name}: it exits with {code}, and nothing was taken away: {said}"

    def attempt(self, fault: Fault) -> None:
        """One command that collects, with a fault."""
        word = self.chance.choice(("wait", "get"))
        command = self.terminal.start(word, self.name)
        self.strike(fault, command)
        code = command.wait(LATER)
        if code != -signal.SIGKILL:
            self.check(code, command.said, over=word == "wait" or not self.struck)

    def settle(self) -> subprocess.CompletedProcess[str]:
        """Collect until nothing more can come. Nodes that the API server has not heard of for a while do not
        count as lost: they are asked again.
        """
        done: list[subprocess.CompletedProcess[str]] = []

        def is_settled() -> bool:
            done.append(self.terminal.call("wait", self.name, patience=LATER))
            self.check(done[-1].returncode, done[-1].stderr)
            again = done[-1].returncode in (INCOMPLETE, UNREACHABLE) and FOR_GOOD not in done[-1].stderr
            return not again

        wait_until(is_settled, f"the results of {self.name} to be here, or lost for good", LATER)
        return done[-1]


def begin(terminal: Terminal, outage: Outage, seed: int) -> Ending:
    """A run whose workers, or whose keeper, hold what it has made."""
    chance = random.Random(seed)
    name, workers = f"end-{next(numbers):04}", chance.randint(1, 2)
    kept = ("--keep", "24h:100Mi" if chance.random() < 0.5 else "10m:0")
    terminal.write("writes.py", WRITES)
    about = ("--name", name, "--image", terminal.image, "-n", str(workers))
    done = terminal.call("run", "-d", *about, *kept, "writes.py")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: terminal.status(name)["state"] == "succeeded", "the end of the run", PATIENCE)
    return Ending(terminal=terminal, outage=outage, name=name, workers=workers, chance=chance)


def story(terminal: Terminal, outage: Outage, faults: list[Fault], seed: int) -> None:
    ending = begin(terminal, outage, seed)
    for fault in faults:
        ending.attempt(fault)
    last = ending.settle()
    if not ending.struck:
        assert last.returncode == 0, last.stderr
    again = terminal.call("get", ending.name)
    ending.check(again.returncode, again.stderr)
    lacked = ending.lacking()
    # After an outage the controllers release pods only when they lead again.
    wait_until(
        lambda: terminal.call("rm", ending.name).returncode in (0, UNKNOWN),
        f"{ending.name} to be removed",
        PATIENCE,
    )
    terminal.wait_for_nothing(ending.name, PATIENCE)
    assert ending.lacking() == lacked, "what has come home stays there"


@at_random(FAULTS, most=3, examples=3, shrink=False)
def test_everything_is_at_home_or_named(
    terminal: Terminal, api_outage: Outage, faults: list[Fault], seed: int
) -> None:
    """Some minutes."""
    story(terminal, api_outage, faults, seed)


@at_random(FAULTS, most=3, examples=60, shrink=False)
def test_everything_is_at_home_or_named_many_times(
    terminal: Terminal, api_outage: Outage, faults: list[Fault], seed: int
) -> None:
    story(terminal, api_outage, faults, seed)
