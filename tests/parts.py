"""`make test`: the parts of the suite, one after another, and how long each took.

Tests of this machine's own engine come first: they are quick to say no. Cluster tests wait more than they
compute, so they run side by side; those that end the cluster itself come last.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from testbed.debian import missing
from testbed.fixtures import FOREIGN

PYTEST = [sys.executable, "-m", "pytest", "--durations=12", "-m"]
PARTS = {
    "checks": ["make", "--no-print-directory", "check"],
    "data": ["make", "--no-print-directory", "data"],
    "local": [*PYTEST, "not soak and not cluster", "-n", "auto", "--maxprocesses", "4"],
    "builds": [sys.executable, "-m", "testbed", "build"],
    "cluster": [*PYTEST, "cluster and not restart and not soak", "-n", "4"],
    "restarts": [*PYTEST, "cluster and restart and not soak"],
}
SIDE_BY_SIDE = ("local", "cluster")
CLUSTER = ("builds", "cluster", "restarts")


def main() -> int:
    """Run every part, or those of the cluster; stop at the first that fails."""
    chosen = list(CLUSTER if sys.argv[1:] == ["cluster"] else PARTS)
    if reason := missing():
        # In CI the fixture turns a missing cluster into a failure; a person is told in one line.
        chosen.remove("builds")
        print(f"cluster tests are skipped unless {FOREIGN} names a cluster: {reason}", flush=True)
    elif os.environ.get(FOREIGN):
        chosen.remove("builds")
    took: dict[str, float] = {}
    code = 0
    for name in chosen:
        began = time.monotonic()
        code = subprocess.run(PARTS[name], check=False).returncode
        if code == 1 and name in SIDE_BY_SIDE:
            # Side by side on a small machine, one test's load is another's time-out; alone it must pass.
            print(f"{name}: what failed beside others is tried once more, alone", flush=True)
            again = [*PARTS[name], "-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
            code = subprocess.run(again, check=False).returncode
        took[name] = time.monotonic() - began
        if code:
            print(f"{name}: failed with exit code {code}", flush=True)
            break
    print("parts: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items()), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
