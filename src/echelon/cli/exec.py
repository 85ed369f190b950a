"""`echelon exec`: a shell, or a command, in a worker's pod."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from echelon.cli.options import complete_runs, target_options, where

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object
    from echelon.model.run import Record

# In the pod, under the run's own Python, which is the one program that every image has: go to the code, and
# become the command; without one, a shell.
_BECOME = """\
import os, sys
folder, *command = sys.argv[1:]
if os.path.isdir(folder):
    os.chdir(folder)
for words in [command] if command else [["bash"], ["sh"], [sys.executable]]:
    try:
        os.execvp(words[0], words)
    except OSError as error:
        last = error
sys.stderr.write("%s: %s\\n" % (words[0], last.strerror))
sys.exit(126 if isinstance(last, PermissionError) else 127)
"""


@click.command("exec", short_help="Open a shell, or run a command, in a worker.")
@click.argument("name", metavar="RUN", shell_complete=complete_runs)
@click.option("--worker", type=click.IntRange(min=0), default=0, metavar="N", help="which worker (default 0)")
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1)
@target_options
def exec(name: str, worker: int, command: tuple[str, ...], **target: str | None) -> int:  # noqa: A001 - its name
    """Open a shell in a worker of a run on Kubernetes, or run a command there, in the folder of the run's
    code; exits with its exit code.

    \b
    Examples:
      echelon exec --on k8s RUN
      echelon exec --on k8s RUN --worker 1 -- nvidia-smi
    """
    from echelon.cli.terminal import has_terminal, join
    from echelon.engines.kubernetes import names
    from echelon.engines.kubernetes.engine import KubernetesEngine
    from echelon.engines.kubernetes.follow.view import pods_of
    from echelon.errors import Unavailable
    from echelon.model.run import parse_uri

    place = where(target)
    ref = parse_uri(name, place["on"] or "local")
    if ref.engine != "k8s":
        raise Unavailable(
            f"run {ref.name!r} is on this machine: its ranks are processes here, and need no way in",
            hint=f"`echelon status {ref.name}` shows their process ids; for a run on a cluster say --on k8s",
        )
    engine = KubernetesEngine(
        context=ref.context or place["context"], namespace=ref.namespace or place["namespace"]
    )
    record = engine.read(ref)
    pod = _running_pod(record, pods_of(engine.api, ref.name), worker)
    tty = has_terminal()
    words = [record.job.python or "python3", "-c", _BECOME, _folder(record), *command]
    with engine.api.exec(pod, words, container=names.CONTAINER, stdin=True, tty=tty) as running:
        code = join(running, tty=tty, stdin=tty or not sys.stdin.isatty())
    return 1 if code is None else code


def _running_pod(record: Record, pods: Sequence[Object], worker: int) -> str:
    """The pod of the worker, if one runs."""
    from echelon.engines.kubernetes.state import workers
    from echelon.errors import InvalidJob, Unavailable
    from echelon.model.job import workers_asked
    from echelon.model.world import worker_count

    name = record.ref.name
    count = workers_asked(record.job) if record.plan is None else worker_count(record.plan.world)
    if worker >= count:
        hint = f"they are numbered 0 to {count - 1}" if count > 1 else "there is only number 0"
        raise InvalidJob("worker", worker, f"is no worker of run {name!r}", hint=hint)
    mine = workers.pods_by_worker(pods).get(worker, [])
    running = [pod for pod in mine if workers.is_running(pod)]
    if not running:
        state = "has no pod"
        if mine and workers.has_ended(mine[-1]):
            state = "has ended"
        elif mine:
            leaving = mine[-1]["metadata"].get("deletionTimestamp")
            state = "is about to end" if leaving else "does not run yet"
        raise Unavailable(
            f"worker {worker} of run {name!r} {state}", hint=f"`echelon status {name}` says more"
        )
    return str(running[-1]["metadata"]["name"])


def _folder(record: Record) -> str:
    """Where the run's code is in the pod."""
    from echelon.engines.kubernetes import names

    code = names.CODE if record.job.pod.code is None else names.CODE_VOLUME
    return (record.job.cwd or "{code}").replace("{code}", code)
