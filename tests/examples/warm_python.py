"""A Python with torch loaded that forks the ranks of a script: a new process needs seconds to load it.

Started by `test_fashion_mnist.py`, with the seconds that one rank may take. Each line on standard input asks
for one run, as a JSON object: `script`, `arguments`, and `ranks`, each with its `environment` and the files
for its `output` and `errors`. The answer is a line with the ranks' exit codes.
"""

import gc
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  torch, and the other half of the seconds: what optimizers load at first use

LONGEST = int(sys.argv[1])  # seconds


def become(rank: dict[str, Any], script: str, arguments: list[str]) -> None:
    """Run the script in this process, as if it had been started with it."""
    signal.alarm(LONGEST)
    for name, descriptor in (("output", 1), ("errors", 2)):
        os.dup2(os.open(rank[name], os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.update(rank["environment"])
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


gc.freeze()  # what is loaded stays: no need for each child to go through it again
for line in sys.stdin:
    run = json.loads(line)
    children = []
    for rank in run["ranks"]:
        child = os.fork()
        if child == 0:
            become(rank, run["script"], run["arguments"])
            sys.stdout.flush()
            os._exit(0)  # taking all of torch down again would cost as much as loading it
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)
