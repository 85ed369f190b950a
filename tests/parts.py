"""`make test` and `make test-all`: the parts of the suite, one after the other, and what is told at the end.

`make test` is the gate: the tests that `tests/gate.py` chooses. `make test-all` holds every test but soak's.
Every part runs, whatever failed before it. A test that hangs fails at its own limit, and the others go on;
the limit of a part is for what no test's limit ends, and no measure of how fast the machine is.

A test that failed is tried once more, alone. If it passes, it counts as passed, and the last lines name it
with its first failure: still a bug, and to be mended, but it does not hold up the work of others. More than
eight second tries fail the gate. One cluster serves all parts; if it is unwell itself after a part has
failed, it is started again and that part is repeated once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from os import environ
from pathlib import Path

from testbed.debian import missing
from testbed.fixtures import FOREIGN, has_cluster_tests, in_ci, running
from testbed.patience import VARIABLE as PATIENCE

from echelon.errors import EchelonError
from testbed import chromium, cluster
from tests import leftovers, part, properties

MOST_SECOND_TRIES = 8
GATE_FILE = Path(".pytest_cache", "gate.json")
MINUTE = 60.0
BESIDE_EACH_OTHER = ("-n", "4", "--dist", "worksteal")


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A command, or tests that pytest chooses by their marks."""

    name: str
    command: tuple[str, ...] = ()
    marks: str = ""
    options: tuple[str, ...] = ()
    needs_cluster: bool = False
    limit: float = 60 * MINUTE
    test_limit: float = 10 * MINUTE  # for one test, with its fixtures
    looks: str = properties.GATE  # how long Hypothesis looks for counterexamples

    def words(self, tests: Sequence[str] = ()) -> list[str]:
        """How it is run: the tests that are named, alone, or all of it. Each part keeps its own cache."""
        if self.command:
            return list(self.command)
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "--durations=12",
            "-o",
            f"cache_dir=.pytest_cache/{self.name}",
            f"--timeout={self.test_limit:g}",
        ]
        return [
            *pytest,
            "-m",
            self.marks,
            *(("-n", "0", *tests) if tests else (*self.options, *self.places())),
        ]

    def places(self) -> list[str]:
        """The files that it is about; none means all. To collect the thousands of tests that need no cluster
        would take each of its processes many seconds more.
        """
        if not self.needs_cluster:
            return []
        return [str(file) for file in sorted(Path("tests").rglob("test_*.py")) if has_cluster_tests(file)]


MAKE = ("make", "--no-print-directory")
BUILD = (sys.executable, "-m", "testbed", "build")
BROWSER = Part(name="browser", command=(sys.executable, "-m", "testbed", "browser"))
GATE = (
    Part(name="checks", command=(*MAKE, "check")),
    Part(name="builds", command=(*BUILD, "--core"), needs_cluster=True),
    BROWSER,
    Part(name="local", marks="gate and not cluster", options=BESIDE_EACH_OTHER),
    Part(
        name="cluster", marks="gate and cluster and not alone", options=BESIDE_EACH_OTHER, needs_cluster=True
    ),
    Part(name="alone", marks="gate and cluster and alone", needs_cluster=True),
)
LONG = 90 * MINUTE
EVERYTHING = (
    Part(name="checks", command=(*MAKE, "check")),
    Part(name="data", command=(*MAKE, "data")),
    Part(name="builds", command=BUILD, needs_cluster=True, limit=LONG),
    BROWSER,
    Part(name="local", marks="not soak and not cluster", options=BESIDE_EACH_OTHER, limit=LONG),
    Part(
        name="cluster",
        marks="cluster and not alone and not restart and not soak",
        options=BESIDE_EACH_OTHER,
        needs_cluster=True,
        limit=LONG,
    ),
    Part(
        name="alone", marks="cluster and alone and not restart and not soak", needs_cluster=True, limit=LONG
    ),
    Part(name="restarts", marks="cluster and restart and not soak", needs_cluster=True, limit=LONG),
)
ALL = tuple(replace(each, looks=properties.FULL, test_limit=20 * MINUTE) for each in EVERYTHING)
CHOICES = {
    "gate": GATE,
    "all": ALL,
    "cluster": tuple(each for each in ALL if each.needs_cluster or each.name == "data"),
    **{each.name: (each,) for each in ALL if each.name != "cluster"},
}


@dataclass(kw_only=True, slots=True)
class Told:
    """What became of one part, over all of its tries."""

    seconds: float = 0.0
    outcome: part.Outcome
    second_tries: dict[str, str] = field(default_factory=dict)  # what passed then: its first failure


@dataclass(slots=True)
class Account:
    """What is told at the end."""

    most_second_tries: int = MOST_SECOND_TRIES
    parts: dict[str, Told] = field(default_factory=dict)

    @property
    def second_tries(self) -> dict[str, str]:
        """Every test that passed when it was tried again, and why it was."""
        return {test: why for told in self.parts.values() for test, why in told.second_tries.items()}

    @property
    def has_passed(self) -> bool:
        """Whether all is well, and not by too many second tries."""
        well = all(told.outcome.is_well for told in self.parts.values())
        return well and len(self.second_tries) <= self.most_second_tries

    def lines(self) -> Iterator[str]:
        """The last lines: every failure once more, then a table, then the verdict."""
        for test, why in self.second_tries.items():
            yield f"--- passed at the second try: {test}; its first failure:\n{why}\n"
        for name, told in self.parts.items():
            for test, why in told.outcome.failures.items():
                yield f"--- FAILED in {name}: {test}\n{why}\n"
            if told.outcome.trouble:
                yield f"--- FAILED: {name}: {told.outcome.trouble}\n"
        yield f"{'part':10} {'passed':>7} {'second try':>11} {'failed':>7} {'seconds':>8}"
        for name, told in self.parts.items():
            tries, failed = (
                len(told.second_tries),
                len(told.outcome.failures) or int(not told.outcome.is_well),
            )
            yield f"{name:10} {told.outcome.passed:7} {tries:11} {failed:7} {told.seconds:8.0f}"
        tried = self.second_tries
        yield f"second try: {len(tried)}" + (f" ({', '.join(tried)})" if tried else "")
        if len(tried) > self.most_second_tries:
            yield f"failed: more than {self.most_second_tries} second tries"
        if failed_parts := [name for name, told in self.parts.items() if not told.outcome.is_well]:
            yield f"failed: {', '.join(failed_parts)}"


def main() -> int:
    """Run the parts that were chosen; `gate`, the default, leaves a note of its success."""
    choices = sys.argv[1:] or ["gate"]
    if unknown := set(choices) - set(CHOICES):
        print(f"{', '.join(sorted(unknown))}: no such part of the tests; there are {', '.join(CHOICES)}")
        return 2
    parts = [each for choice in choices for each in CHOICES[choice]]
    ours = not environ.get(FOREIGN)
    if ours and (reason := missing()):
        if in_ci():
            print(f"there is no cluster, and CI must have one: {reason}")
            return 1
        print(f"the cluster tests are skipped unless {FOREIGN} names a cluster: {reason}", flush=True)
        parts = [each for each in parts if not each.needs_cluster]
    elif not ours:
        parts = [each for each in parts if each.name != "builds"]
    if any(each.name == BROWSER.name for each in parts) and (reason := chromium.missing()):
        if in_ci():
            print(f"there is no browser, and CI must have one: {reason}")
            return 1
        print(f"the tests in a browser are skipped: {reason}", flush=True)
        parts = [each for each in parts if each.name != BROWSER.name]
    leftovers.mark_this_run()
    if ended := leftovers.end_leftovers():
        print(f"ended what an earlier test run has left: processes {', '.join(map(str, ended))}", flush=True)
    commit = describe_commit()
    is_gate = choices == ["gate"]
    account = Account(MOST_SECOND_TRIES if is_gate else sys.maxsize)
    run_all(parts, account, ours=ours)
    print(*account.lines(), sep="\n", flush=True)
    if account.has_passed and is_gate:
        write_pass(account, commit)
    return 0 if account.has_passed else 1


def run_all(parts: Sequence[Part], account: Account, *, ours: bool) -> None:
    """Run every part, to the end."""
    with ExitStack() as kept:
        started = not ours
        for each in parts:
            began = time.monotonic()
            print(f"--- {each.name}", flush=True)
            try:
                if each.needs_cluster and each.marks and not started:
                    kept.enter_context(running())
                    started = True
                left = account.most_second_tries - len(account.second_tries)
                told = run_part(each, left=left, ours=ours)
            except EchelonError as error:  # the cluster does not start
                told = Told(outcome=part.Outcome(code=1, trouble=str(error)))
            told.seconds = time.monotonic() - began
            account.parts[each.name] = told


def run_part(each: Part, *, left: int, ours: bool) -> Told:
    """Run one part; what fails in it is tried again, unless that is more than is `left`."""
    told = Told(outcome=run_once(each))
    if each.command or told.outcome.is_well:
        return told
    if each.needs_cluster and ours and (reason := cluster.trouble()):
        print(f"--- {each.name} is repeated: the cluster is started again, since {reason}", flush=True)
        cluster.restart()
        told.second_tries[f"the cluster in {each.name}"] = reason
        told.outcome = run_once(each)
    first = told.outcome
    if first.trouble or not 0 < len(first.failures) <= left - len(told.second_tries):
        return told
    for test in first.failures:
        print(f"--- {each.name}: {test} is tried again, alone", flush=True)
    again = run_once(each, tests=list(first.failures))
    passed = [test for test in first.failures if test not in again.failures] if not again.trouble else []
    told.second_tries |= {test: first.failures[test] for test in passed}
    told.outcome = replace(again, passed=first.passed + again.passed, skipped=first.skipped)
    return told


def run_once(each: Part, tests: Sequence[str] = ()) -> part.Outcome:
    """Run a part, or some tests of it."""
    chosen = {} if each.command else {PATIENCE: "3", properties.VARIABLE: each.looks}
    return part.run(each.words(tests), limit=each.limit, environment=chosen)


def describe_commit() -> dict[str, object]:
    """What is tested: the commit, and whether the files are exactly those of it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain")}


def write_pass(account: Account, commit: Mapping[str, object]) -> None:
    """Note on which commit the gate has passed, and how."""
    passed = {
        **commit,
        "seconds": {name: round(told.seconds) for name, told in account.parts.items()},
        "tests": sum(told.outcome.passed for told in account.parts.values()),
        "second_tries": list(account.second_tries),
    }
    GATE_FILE.parent.mkdir(exist_ok=True)
    GATE_FILE.write_text(json.dumps(passed, indent=2) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
