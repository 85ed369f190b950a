"""What happened in a run. Status is folded from these, whichever engine they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from echelon.model.copy import Manifest
from echelon.model.program import Step
from echelon.values import frozen

Kind = Literal[
    "recorded",  # the run exists under its name; nothing runs yet
    "queued",  # it waits in the queue; `reason` is why
    "admitted",  # it has its place; its workers are being started
    "waiting",  # something keeps its workers from starting; `reason` is what, and what helps
    "worker-started",  # an agent runs
    "gave-way",  # the gang was not whole, and all workers left their GPUs to other runs; `reason`
    "worker-running",  # the worker's ranks run
    "rank-ended",  # one rank ended; `exit_code` or `signal`
    "notice",  # `worker` was told to leave, for `reason`: all ranks have got SIGTERM, and `grace` seconds
    "resizing",  # workers have joined, as `reason` says: all ranks have got SIGTERM, and `grace` seconds
    "resized",  # `workers` take part from this start on; `reason` is what has changed
    "worker-ended",  # the agent ended as it should
    "worker-lost",  # the agent ended as it should not, or does not respond
    "failed",  # `cause` ended a generation
    "restarting",  # the gang starts again; `restart` counts
    "verdict",  # the leader has decided; its workers are leaving
    "holding",  # workers keep what they hold, for their results to be fetched, at most `until`
    "worker-kept",  # the run's keeper has the worker's results; `manifests` of what it has
    "unkept",  # the worker holds its results itself; `reason` is why the keeper does not have them
    "keeping",  # the keeper holds the results of `workers`, at most `until`
    "checkpoint",  # the run's keeper has the checkpoint `path`, whole; of `size` bytes in `files` files
    "restored",  # a worker has the checkpoint `path` back, before the ranks of `generation` start
    "stopping",  # the end was requested; `reason` is by whom or why
    "steps",  # `steps` of a run that is made of runs stand so now; the first such event has all of them
    "still",  # nothing was printed for long, and its ranks stand still; `reason` is what was seen
    "moving",  # they do something again
    "note",  # a message for the user
    "finished",  # the run is over: `outcome`
]
Outcome = Literal["succeeded", "failed", "stopped", "timed-out", "lost"]
Disruption = Literal[
    "preempted",  # for a pod of higher priority
    "drained",  # through the eviction API, as `kubectl drain` does
    "tainted",  # its node got a taint that it does not tolerate
    "evicted",  # its node lacked something, such as memory
    "node-shutdown",  # its node told it to leave
]
"""How a cluster takes away a worker that was well."""
CauseKind = Literal[
    "rank",  # a rank failed
    "launcher",  # the program failed that starts the ranks, and no rank before it
    "worker-lost",  # a worker's agent ended as it should not, or does not respond
    "worker-left",  # a worker's agent was ended by SIGTERM, as when its pod is deleted
    "worker-evicted",  # the cluster took a worker away that was well: `disruption` says how
    "worker-absent",  # a worker did not come in time
    "stuck",  # for the time of --stall no rank printed or computed, or some waited for others
    "resized",  # nothing has failed: workers have joined
    "given-up",  # what the run waits for will not come
    "run-lost",  # the run ended, and nothing is left that says how
]


LONGEST = 2000  # characters of a text that others may have written
_MOST_LINES = 200  # of a rank's last ones
_MOST_TEXTS = 2000  # one for each worker
_LAST_MOMENT = 1e11  # seconds; any calendar has it
_LARGEST = 2**63  # of a count; a file system has fewer bytes


@frozen
class RankEnd:
    """How one rank ended."""

    rank: int
    worker: int
    exit_code: int | None = None
    signal: str | None = None
    error: str | None = None
    consequence: bool = False


@frozen
class RootCause:
    """Why a run failed: the rank that failed first, or, where `rank` is None, the worker that was lost.

    `summary` is the whole of it in one sentence; `tail` are the last lines of the rank's output; `others` are
    the ranks that failed after it, those that died of it marked as such.
    """

    summary: str
    kind: CauseKind | None = None  # None in records of older versions
    disruption: Disruption | None = None
    worker: int | None = None
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    error: str | None = None
    hint: str | None = None
    tail: tuple[str, ...] = ()
    others: tuple[RankEnd, ...] = ()
    peers: str | None = None  # how the others stood, where some had ended well before


@frozen
class Event:
    """One thing that happened. Which fields are set depends on `kind`."""

    kind: Kind
    at: float
    worker: int | None = None
    rank: int | None = None
    restart: int | None = None
    spared: int | None = None  # so many of the restarts do not count: a worker was told to leave
    disruption: Disruption | None = None  # of a worker that was lost
    pid: int | None = None
    pids: Mapping[str, int] | None = None  # of the worker's ranks
    exit_code: int | None = None
    signal: str | None = None
    told: bool | None = None  # of a rank that ended: it was told to end before, whatever its exit code
    grace: float | None = None  # of a notice: seconds from SIGTERM to SIGKILL
    reason: str | None = None
    cause: RootCause | None = None
    outcome: Outcome | None = None
    until: float | None = None
    node: str | None = None
    released: float | None = None  # of an end: when the last worker had left, and its GPUs were free
    results: Literal["gone"] | None = None  # of an end: no copy of the results is left
    # Of a verdict and an end: what of the results is lost, a sentence per worker, and which output lacks
    # lines; of a note: what lacks lines from now on.
    missing: tuple[str, ...] | None = None
    # Of an end, and of `steps`: the folder that has the results, after its machine's name.
    fetched_to: str | None = None
    version: str | None = None  # of the agent
    # Of `waiting`: the kind of what is waited for; "untended" needs a command. Of `still`: "stuck" where some
    # ranks wait for others, else "quiet".
    trouble: str | None = None
    places: tuple[str, ...] | None = None  # of `still`: where ranks are, those first that are waited for
    manifests: tuple[Manifest, ...] | None = None  # of what the worker holds, or, at the end, all workers do
    workers: tuple[int, ...] | None = None  # of `keeping` and `resized`
    left_out: tuple[tuple[str, str], ...] | None = None  # of `worker-kept`: what cannot be copied, and why
    only: Literal["checkpoints"] | None = None  # of `worker-kept`: the worker was lost, with all but these
    # Of `worker-kept`, what it wrote to safe checkpoints: the version of its part, the mark of all parts, and
    # their time, 0 of a pointer to another one.
    parts: Mapping[str, tuple[str, str, int]] | None = None
    steps: tuple[Step, ...] | None = None
    path: str | None = None  # of `checkpoint` and `restored`: below the results
    size: int | None = None  # bytes
    files: int | None = None
    generation: int | None = None  # of `restored`


def cut(text: str) -> str:
    """A text of another program, or its beginning."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def bounded(event: Event) -> Event:
    """An event from another program, with texts that are no longer than a message can be."""
    cause = event.cause
    if cause is not None:
        cause = replace(
            cause,
            summary=cut(cause.summary),
            error=_cut(cause.error),
            hint=_cut(cause.hint),
            peers=_cut(cause.peers),
            signal=_cut(cause.signal),
            tail=tuple(map(cut, cause.tail[-_MOST_LINES:])),
        )
    missing = None if event.missing is None else tuple(map(cut, event.missing[:_MOST_TEXTS]))
    places = None if event.places is None else tuple(map(cut, event.places[:_MOST_LINES]))
    reason, node, path = _cut(event.reason), _cut(event.node), _cut(event.path)
    return replace(event, cause=cause, missing=missing, places=places, reason=reason, node=node, path=path)


def _cut(text: str | None) -> str | None:
    return None if text is None else cut(text)


def is_moment(at: float) -> bool:
    """Whether a number is a time in seconds that a calendar has; NaN is none."""
    return 0.0 <= at < _LAST_MOMENT


def is_sound(event: Event) -> bool:
    """Whether an event from another program has times, counts and an exit code that there can be."""
    code = event.exit_code
    seconds = (event.until, event.released, event.grace)
    times = (event.at, *(each for each in seconds if each is not None))
    counts = (each for each in (event.size, event.files, event.generation) if each is not None)
    return (
        all(map(is_moment, times))
        and (code is None or -255 <= code <= 255)
        and all(0 <= each < _LARGEST for each in counts)
    )
