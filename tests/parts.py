"""`make test`: the parts of the suite, and how long each took.

Tests of this machine's own engine compute, and tests that must have the cluster to themselves mostly wait, so
those two go on at the same time. The other cluster tests run side by side; those that end the cluster come
last. One cluster serves all parts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from testbed.debian import missing
from testbed.fixtures import FOREIGN, running

from echelon.errors import EchelonError

PARTS = {
    "checks": ["make", "--no-print-directory", "check"],
    "data": ["make", "--no-print-directory", "data"],
    "builds": [sys.executable, "-m", "testbed", "build"],
}
TESTS = {
    "local": ["not soak and not cluster", "-n", "auto", "--maxprocesses", "4"],
    "alone": ["cluster and alone and not restart and not soak"],
    "cluster": ["cluster and not alone and not restart and not soak", "-n", "4"],
    "restarts": ["cluster and restart and not soak"],
}
STEPS = (("checks",), ("data",), ("builds",), ("local", "alone"), ("cluster",), ("restarts",))
ON_CLUSTER = ("builds", "alone", "cluster", "restarts")
BESIDE_OTHERS = ("local", "alone", "cluster")


def main() -> int:
    """Run every part, or those of the cluster; stop after the first step that fails."""
    chosen = set(ON_CLUSTER if sys.argv[1:] == ["cluster"] else [*PARTS, *TESTS])
    reason = missing()
    if reason:
        # In CI the fixture turns a missing cluster into a failure; a person is told in one line.
        print(f"cluster tests are skipped unless {FOREIGN} names a cluster: {reason}", flush=True)
    ours = not reason and not os.environ.get(FOREIGN)
    if not ours:
        chosen.remove("builds")
    took: dict[str, float] = {}
    failed: list[str] = []
    with ExitStack() as kept:
        for step in STEPS:
            names = [name for name in step if name in chosen]
            if ours and not took.keys() & set(TESTS) and set(names) & set(TESTS):
                kept.enter_context(running())
            failed = run_together(names, took)
            if failed:
                break
    print("parts: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items()), flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def run_together(names: Sequence[str], took: dict[str, float]) -> list[str]:
    """Run parts at the same time, and name those that failed. Only the first prints as it goes."""

    def run(name: str) -> subprocess.CompletedProcess[bytes]:
        began = time.monotonic()
        kept = None if name == names[0] else subprocess.PIPE
        done = subprocess.run(command(name), stdout=kept, stderr=kept and subprocess.STDOUT, check=False)
        took[name] = time.monotonic() - began
        return done

    with ThreadPoolExecutor() as pool:
        codes = {}
        for name, done in zip(names, pool.map(run, names), strict=True):
            sys.stdout.buffer.write(done.stdout or b"")
            sys.stdout.flush()
            codes[name] = done.returncode
    for name in names:
        if codes[name] == 1 and name in BESIDE_OTHERS:
            # On a small machine, one test's load is another's time-out; alone it must pass.
            print(f"{name}: what failed beside others is tried once more, alone", flush=True)
            again = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
            codes[name] = subprocess.run([*command(name), *again], check=False).returncode
    return [name for name in names if codes[name]]


def command(name: str) -> list[str]:
    """How a part is run; each keeps its own memory of what failed."""
    if name in PARTS:
        return PARTS[name]
    memory = f"cache_dir=.pytest_cache/{name}"
    return [sys.executable, "-m", "pytest", "--durations=12", "-o", memory, "-m", *TESTS[name]]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EchelonError as error:  # the cluster does not start, or another checkout has one
        sys.exit(str(error))
