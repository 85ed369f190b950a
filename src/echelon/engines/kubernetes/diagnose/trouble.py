"""What keeps a run from running: one value for all the parts of the diagnosis, and how long it may last.

`diagnose` gathers troubles, followers of a run report the first of them, and `gives_up` decides when waiting
has become pointless. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from echelon.values import frozen

Kind = Literal[
    "unreachable",  # the cluster does not respond
    "queue",  # Kueue has not admitted it
    "suspended",  # its Job was suspended from outside
    "untended",  # it is queued, and no process looks after it
    "refused",  # the API server lets no pod be made, and will not
    "restricted",  # the namespace's Pod Security level refuses pods that may run as root
    "invalid-image",  # the image's name is none
    "image",  # it does not exist, or is of no use here
    "default-image",  # one that the user did not name cannot be pulled
    "login",  # the registry wants a login that it did not get
    "config",  # something that the container's settings name is not there
    "start",  # the container's command cannot be started
    "claim",  # a volume claim that is missing or cannot be served
    "mount",  # a volume that cannot be mounted
    "create",  # the node cannot make the container, and tries again
    "attach",  # a volume that the node does not get hold of, for a reason that may pass
    "registry",  # it does not answer
    "crash-loop",  # a worker that fails again and again
    "oom",
    "evicted",
    "preempted",
    "node-lost",
    "lost",  # in any other way
    "quota",  # used up for now
    "webhook",  # one that does not answer keeps pods from being made
    "sandbox",  # the node cannot set the pod up
    "unschedulable",  # no node has room, or will take it
    "volume",  # on its way
    "scaling",  # an autoscaler adds a node
    "silent",  # no scheduler, controller or kubelet has acted yet
    "pulling",  # the image is on its way
]
# The most telling first: what cannot heal by itself, and what explains the others.
ORDER: dict[str, int] = {kind: number for number, kind in enumerate(Kind.__args__)}  # type: ignore[attr-defined]

# Seconds after which a trouble that cannot heal by itself ends the run. A person may still mend it until
# then (push the image, make the secret); what is not named here is waited for as long as it takes.
PATIENCE: dict[str, float] = {
    "invalid-image": 5.0,
    "start": 5.0,
    "config": 60.0,
    "refused": 60.0,
    "restricted": 60.0,
    "default-image": 40.0,
    "image": 120.0,
    "login": 120.0,
    "mount": 180.0,
    "claim": 180.0,
    "create": 180.0,
    "attach": 600.0,
    "registry": 600.0,
}


@frozen
class Trouble:
    """Why a run, or some of its workers, do not run: a sentence, and in `hint` what to do next.

    `worker` is the first of `workers` that have it; None if it is the whole run's. `healable` if it may pass
    by itself. `since` is when it began, if the cluster reports it.
    """

    worker: int | None
    kind: Kind
    sentence: str
    hint: str = ""
    healable: bool = True
    since: float | None = None
    workers: tuple[int, ...] = ()


@frozen
class Finding:
    """A trouble of some workers, before those that have the same are reported together.

    In `text`, `{who}` stands for these workers and `{pod}` for their pods."""

    kind: Kind
    text: str
    workers: tuple[int, ...] = ()
    hint: str = ""
    healable: bool = True
    since: float | None = None


def report(findings: Iterable[Finding], alone: str | None = None) -> list[Trouble]:
    """Findings as troubles: the same of several workers as one, the most telling first. `alone` is the name
    of a pod that is no worker of a run.
    """
    together: dict[tuple[object, ...], list[Finding]] = {}
    for each in findings:
        together.setdefault((each.kind, each.text, each.hint, each.healable), []).append(each)
    troubles = []
    for alike in together.values():
        first = alike[0]
        workers = tuple(sorted({worker for each in alike for worker in each.workers}))
        who = alone or name_workers(workers)
        pod = alone or f"the pod of {who}"
        times = [each.since for each in alike if each.since is not None]
        troubles.append(
            Trouble(
                worker=workers[0] if workers else None,
                kind=first.kind,
                sentence=first.text.replace("{who}", who).replace("{pod}", pod),
                hint=first.hint,
                healable=first.healable,
                since=min(times) if times else None,
                workers=workers,
            )
        )
    return sorted(
        troubles, key=lambda each: (each.healable, ORDER[each.kind], each.since or 0.0, each.sentence)
    )


def gives_up(troubles: Sequence[Trouble], now: float) -> Trouble | None:
    """The trouble that has lasted for so long that waiting is pointless, if there is one."""
    for trouble in troubles:
        limit = PATIENCE.get(trouble.kind)
        if trouble.healable or limit is None or trouble.since is None:
            continue
        if now - trouble.since >= limit:
            return trouble
    return None


def told(trouble: Trouble) -> str:
    """A trouble as people read it: what it is, what to do, and how long it may last."""
    more = "; ".join(filter(None, (trouble.hint, limit_note(trouble))))
    return f"{trouble.sentence} ({more})" if more else trouble.sentence


def limit_note(trouble: Trouble) -> str:
    """How long such a trouble may last before the run ends; nothing if it may pass by itself."""
    limit = PATIENCE.get(trouble.kind)
    if trouble.healable or limit is None:
        return ""
    return f"the run ends if it lasts {limit / 60:g} min" if limit >= 60 else ""


def name_workers(workers: Sequence[int]) -> str:
    """`worker 3`, `workers 0-3, 7`; `the workers` if none is named."""
    if not workers:
        return "the workers"
    runs: list[list[int]] = []
    for worker in workers:
        if runs and worker == runs[-1][-1] + 1:
            runs[-1].append(worker)
        else:
            runs.append([worker])
    pieces = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"worker{'s' * (len(workers) > 1)} {', '.join(pieces)}"
