"""`make test`: the parts of the suite, and how long each took.

Tests of this machine's own engine compute, and tests that must have the cluster to themselves mostly wait, so
those two go on at the same time, the former with less priority. The other cluster tests run side by side;
those that end the cluster come last. One cluster serves all parts.

Where the caches are empty, tests whose controllers or images are not built after 40 minutes are skipped, and
the last lines say which builds those were; what was built is kept for the next time.

A test that fails has failed, with one exception: one that is marked `load_sensitive` and failed beside others
is rerun once, alone, and the last lines name it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from testbed.debian import missing
from testbed.fixtures import FOREIGN, has_cluster_tests, in_ci, running
from testbed.patience import VARIABLE as PATIENCE
from testbed.progress import UNTIL as BUILDS_UNTIL

from echelon.errors import EchelonError
from tests.summary import FAILURES

PARTS = {
    "checks": ["make", "--no-print-directory", "check"],
    "data": ["make", "--no-print-directory", "data"],
    "builds": [sys.executable, "-m", "testbed", "build"],
}
TESTS = {
    "local": ["not soak and not cluster", "-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"],
    "alone": ["cluster and alone and not restart and not soak"],
    "cluster": ["cluster and not alone and not restart and not soak", "-n", "4", "--dist", "worksteal"],
    "restarts": ["cluster and restart and not soak"],
}
STEPS = (("checks",), ("data",), ("builds",), ("local", "alone"), ("cluster",), ("restarts",))
ON_CLUSTER = ("builds", "alone", "cluster", "restarts")
BESIDE_OTHERS = ("local", "alone", "cluster")
TIME_FOR_BUILDS = 40 * 60.0  # with empty caches all builds and all tests together take more than an hour
GIVES_WAY = "local"  # it computes, so that what waits beside it would otherwise wait for a processor, too


@dataclass
class Account:
    """What is told at the end."""

    took: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    rerun: list[str] = field(default_factory=list)

    def print(self) -> None:
        """The last lines of `make test`."""
        print("parts: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.took.items()))
        print(f"rerun alone: {len(self.rerun)}" + (f" ({', '.join(self.rerun)})" if self.rerun else ""))
        if self.failed:
            print(f"failed: {', '.join(self.failed)}")
        sys.stdout.flush()


def main() -> int:
    """Run every part, or those of the cluster; stop after the first step that fails."""
    chosen = set(ON_CLUSTER if sys.argv[1:] == ["cluster"] else [*PARTS, *TESTS])
    ours = not os.environ.get(FOREIGN)
    if ours and (reason := missing()):
        if in_ci():
            print(f"there is no cluster, and CI must have one: {reason}")
            return 1
        print(f"the cluster tests are skipped unless {FOREIGN} names a cluster: {reason}", flush=True)
        chosen -= set(ON_CLUSTER)
    elif not ours:
        chosen.discard("builds")
    os.environ.setdefault(BUILDS_UNTIL, str(time.time() + TIME_FOR_BUILDS))
    account = Account()
    with ExitStack() as kept:
        for step in STEPS:
            names = [name for name in step if name in chosen]
            if ours and "alone" in names:  # the first part that needs it
                kept.enter_context(running())
            run_together(names, account)
            if account.failed:
                break
    account.print()
    return 1 if account.failed else 0


def run_together(names: Sequence[str], account: Account) -> None:
    """Run parts at the same time. Only the first prints as it goes."""

    def run(name: str) -> tuple[subprocess.CompletedProcess[bytes], dict[str, str | None]]:
        began = time.monotonic()
        kept = None if name == names[0] else subprocess.PIPE
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "failures")
            done = subprocess.run(
                [*command(name), *places(name)],
                stdout=kept,
                stderr=kept and subprocess.STDOUT,
                check=False,
                env=os.environ | {FAILURES: str(file)} | ({PATIENCE: "3"} if name in BESIDE_OTHERS else {}),
            )
            failures = json.loads(file.read_text()) if file.exists() else {}
        account.took[name] = time.monotonic() - began
        return done, failures

    with ThreadPoolExecutor() as pool:
        results = dict(zip(names, pool.map(run, names), strict=True))
    for done, _ in results.values():
        sys.stdout.buffer.write(done.stdout or b"")
        sys.stdout.flush()
    for name, (done, failures) in results.items():
        again = deserve_rerun(done.returncode, failures) if name in BESIDE_OTHERS else []
        if again:
            account.rerun += again
            for test in again:
                print(f"{name}: {test} is rerun alone, since {failures[test]}", flush=True)
            done = subprocess.run([*command(name), "-n", "0", *again], check=False)  # noqa: PLW2901
        if done.returncode:
            account.failed.append(name)


def deserve_rerun(code: int, failures: Mapping[str, str | None]) -> list[str]:
    """The tests to rerun after a part that ended with `code`: all that failed, if each of them says why it
    needs quiet; none, if a single one does not.
    """
    tests_failed = 1  # pytest's exit code; any other says that the run itself went wrong
    return list(failures) if code == tests_failed and all(failures.values()) else []


def command(name: str) -> list[str]:
    """How a part is run; each keeps its own cache."""
    if name in PARTS:
        return PARTS[name]
    cache = f"cache_dir=.pytest_cache/{name}"
    before = ["nice", "-n", "10"] if name == GIVES_WAY else []
    return [*before, sys.executable, "-m", "pytest", "--durations=12", "-o", cache, "-m", *TESTS[name]]


def places(name: str) -> list[str]:
    """The files that a part is about; none means all. To collect the thousands of tests that need no cluster
    would take each of its processes 15 s more.
    """
    if name not in ON_CLUSTER or name in PARTS:
        return []
    return [str(file) for file in sorted(Path("tests").rglob("test_*.py")) if has_cluster_tests(file)]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EchelonError as error:  # the cluster does not start, or another checkout has one
        sys.exit(str(error))
