"""A shell with the environment of a rank in its pod, through `pods/exec`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from echelon.engines.abilities import choose_rank
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.abilities.terminal import has_terminal, join
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.follow.view import pods_of, read_record
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import workers
from echelon.errors import Unavailable
from echelon.model.run import RunRef


class PodShell:
    """Shells beside the ranks of a cluster's runs."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def enter(
        self, ref: RunRef, command: Sequence[str] = (), *, worker: int | None = None, rank: int | None = None
    ) -> int:
        """Run a command in the pod of a rank's worker; the agent there knows the rank's environment."""
        api = self._connect()
        stored = read_record(api, ref)
        chosen = choose_rank(stored.run, worker, rank)
        pod = running_pod(pods_of(api, stored), ref.name, chosen.worker)
        arguments = names.agent_command(
            stored.run.job.python, "shell", names.TASK, str(chosen.rank), *command
        )
        tty = has_terminal()
        container = dialects.named(stored.dialect).CONTAINER
        with api.exec(pod, arguments, container=container, stdin=True, tty=tty) as running:
            code = join(running, tty=tty, stdin=tty or not sys.stdin.isatty())
        return 1 if code is None else code


def running_pod(pods: Sequence[Pod], run: str, worker: int) -> str:
    """The name of the worker's pod, if one runs."""
    mine = workers.pods_by_worker(pods).get(worker, [])
    running = [pod for pod in mine if workers.is_running(pod)]
    if running:
        return running[-1].metadata.name
    state = "has no pod"
    if mine and workers.has_ended(mine[-1]):
        state = "has ended"
    elif mine:
        state = "is about to end" if mine[-1].metadata.leaves else "does not run yet"
    raise Unavailable(f"worker {worker} of run {run!r} {state}", hint=f"`echelon status {run}` says more")
