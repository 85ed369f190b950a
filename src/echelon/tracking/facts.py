"""What a tracker gets of a run: its parameters, as its arguments have them, and its origin. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

from echelon.model.job import Job
from echelon.model.run import Record, opening_status
from echelon.model.world import gpu_count, rank_count, worker_count
from echelon.tracking.sink import Facts

_LONGEST = 500  # characters of a value: what every MLflow takes
_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_PAIR = re.compile(r"\+{0,2}([A-Za-z_][\w.@/-]*)=(.*)", re.DOTALL)  # as Hydra has them
_SECRETS = frozenset(("apikey", "credential", "credentials", "passwd", "password", "pwd", "secret", "token"))
_SECRET_PAIRS = (("api", "key"), ("access", "key"), ("private", "key"))


def facts_of(record: Record) -> Facts:
    """What is known of a run."""
    job, ref = record.job, record.ref
    tracking = job.tracking
    began = tracking.began if tracking is not None and tracking.began else record.created
    who = f"{ref.engine}/{ref.namespace or ''}/{ref.name} {record.owner} {record.user} {began!r}"
    status = opening_status(record)
    labels = {"echelon.run": str(ref)}
    if tracking is not None and tracking.changed:
        labels["echelon.uncommitted"] = "true"
    return Facts(
        id=hashlib.sha256(who.encode()).hexdigest()[:32],
        name=ref.name,
        created=began,
        parameters={**dict(parameters_of((*job.command[1:], *job.args))), **dict(_shape(record))},
        labels=labels,
        source=_cut(job.script or job.module or " ".join(job.command[:1])),
        user=record.user or record.owner,
        commit="" if tracking is None else tracking.commit,
        results=status.results or "",
    )


def parameters_of(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The named arguments of a script: `--lr 0.1`, `--lr=0.1`, `--layers 1 2`, `--fast`, `lr=0.1`. Values
    that are secrets by their names are left out.
    """
    for name, value in arguments_of(args):
        if name and not is_secret(name):
            yield name, _cut(value)


def arguments_of(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """All arguments of a script with their names; the name of a positional one is ""."""
    name, values = "", list[str]()
    for word in (*args, "--"):
        flag = _FLAG.fullmatch(word)
        if name and flag is None and word != "--":
            values.append(word)
            continue
        if name:
            yield name, " ".join(values) or "true"
        name, values = "", []
        given = flag or _PAIR.fullmatch(word)
        if given is not None and given[2] is None:
            name = given[1]
        elif given is not None:
            yield given[1], given[2]
        elif word != "--":
            yield "", word


def is_secret(name: str) -> bool:
    """Whether an argument's value is a secret, by its name."""
    words = tuple(re.split(r"[^a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()))
    return not _SECRETS.isdisjoint(words) or any(
        pair == words[at : at + 2] for at in range(len(words)) for pair in _SECRET_PAIRS
    )


def _shape(record: Record) -> Iterator[tuple[str, str]]:
    """What of the job decides how it trains."""
    job: Job = record.job
    yield "echelon.framework", job.framework
    if record.plan is not None:
        world = record.plan.world
        yield "echelon.workers", str(worker_count(world))
        yield "echelon.ranks", str(rank_count(world))
        yield "echelon.gpus", str(gpu_count(world))
    if job.resources.gpu_type:
        yield "echelon.gpu_type", job.resources.gpu_type
    if job.pod.image:
        yield "echelon.image", _cut(job.pod.image)
    if job.restarts:
        yield "echelon.restarts", str(job.restarts)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
