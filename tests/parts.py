"""`make test`: the parts of the suite, one after another, and how long each took.

Tests of this machine's own engine come first: they are quick to say no. Cluster tests wait more than they
compute, so they run side by side; those that must have the cluster to themselves come after them, one by one,
and those that end the cluster last. One cluster serves all parts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

from testbed.debian import missing
from testbed.fixtures import FOREIGN, running

from echelon.errors import EchelonError

PYTEST = [sys.executable, "-m", "pytest", "--durations=12", "-m"]
PARTS = {
    "checks": ["make", "--no-print-directory", "check"],
    "data": ["make", "--no-print-directory", "data"],
    "local": [*PYTEST, "not soak and not cluster", "-n", "3"],
    "builds": [sys.executable, "-m", "testbed", "build"],
    "cluster": [*PYTEST, "cluster and not alone and not restart and not soak", "-n", "4"],
    "alone": [*PYTEST, "cluster and alone and not restart and not soak"],
    "restarts": [*PYTEST, "cluster and restart and not soak"],
}
SIDE_BY_SIDE = ("local", "cluster")
ON_CLUSTER = ("cluster", "alone", "restarts")


def main() -> int:
    """Run every part, or those of the cluster; stop at the first that fails."""
    chosen = ["builds", *ON_CLUSTER] if sys.argv[1:] == ["cluster"] else list(PARTS)
    reason = missing()
    if reason:
        # In CI the fixture turns a missing cluster into a failure; a person is told in one line.
        print(f"cluster tests are skipped unless {FOREIGN} names a cluster: {reason}", flush=True)
    ours = not reason and not os.environ.get(FOREIGN)
    if not ours:
        chosen.remove("builds")
    took: dict[str, float] = {}
    code = 0
    with ExitStack() as kept:
        for name in chosen:
            began = time.monotonic()
            if ours and name == ON_CLUSTER[0]:
                kept.enter_context(running())
            code = run(name)
            took[name] = time.monotonic() - began
            if code:
                print(f"{name}: failed with exit code {code}", flush=True)
                break
    print("parts: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items()), flush=True)
    return code


def run(name: str) -> int:
    """Run one part; its exit code."""
    code = subprocess.run(PARTS[name], check=False).returncode
    if code == 1 and name in SIDE_BY_SIDE:
        # Side by side on a small machine, one test's load is another's time-out; alone it must pass.
        print(f"{name}: what failed beside others is tried once more, alone", flush=True)
        again = [*PARTS[name], "-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
        code = subprocess.run(again, check=False).returncode
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EchelonError as error:  # the cluster does not start, or another checkout has one
        sys.exit(str(error))
