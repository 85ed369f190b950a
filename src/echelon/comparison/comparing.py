"""From runs to what differs between them. Reading changes nothing."""

from __future__ import annotations

import tarfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

from echelon.comparison.code import FileChange, compare_archives
from echelon.comparison.facts import Difference, Topic, differences, facts_of
from echelon.comparison.measured import MetricDifference, compare_metrics, lowest_ranks
from echelon.engines.abilities import ShippedCode
from echelon.errors import EchelonError
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.output.metric import Metric
from echelon.model.run import parse_uri
from echelon.values import frozen


@frozen
class Compared:
    """One of the runs, and how it stands."""

    name: str
    uri: str
    state: str
    created: float
    seconds: float  # since it was submitted, up to its end
    restarts: int
    exit_code: int | None = None


@frozen
class CodeDifference:
    """The code of a run beside that of the first one. `reason` tells why it is not known."""

    run: str
    verdict: Literal["same", "differs", "unknown"]
    reason: str = ""
    files: tuple[FileChange, ...] = ()


@frozen
class Comparison:
    """All of it; values of differences and metrics are in the order of the runs."""

    runs: tuple[Compared, ...]
    differences: tuple[Difference, ...]
    code: tuple[CodeDifference, ...]  # one for each run but the first
    metrics: tuple[MetricDifference, ...]
    unread: tuple[str, ...] = ()  # runs whose metrics cannot be read, and why


def compare(
    runs: Sequence[Run],
    metrics: Sequence[str] = (),
    see: Callable[[str, Metric], object] = lambda _run, _metric: None,
) -> Comparison:
    """Lay runs beside each other. Raises what keeps one from being read, but for its metrics; of these,
    only those named, if any are. `see` gets each value that is read, with the name of its run.
    """
    jobs = [run.job() for run in runs]
    names = _names(runs)
    measured, unread = [], list[str]()
    for run, name in zip(runs, names, strict=True):
        try:
            measured.append(lowest_ranks(_metrics(run, metrics, partial(see, name))))
        except EchelonError as error:
            measured.append({})
            unread.append(f"{name}: {error.message}")
    return Comparison(
        runs=tuple(_standing(run, name) for run, name in zip(runs, names, strict=True)),
        differences=tuple(differences_of(runs, jobs)),
        code=tuple(_compare_code(runs, names)),
        metrics=tuple(compare_metrics(measured)),
        unread=tuple(unread),
    )


def differences_of(runs: Sequence[Run], jobs: Sequence[Job]) -> list[Difference]:
    """What differs in what they were asked to do, and in where they run."""
    found = []
    for run, job in zip(runs, jobs, strict=True):
        facts = facts_of(job, run.plan())
        ref = parse_uri(run.uri, "")
        place = " ".join(filter(None, (ref.engine, ref.context, ref.namespace)))
        found.append({**facts, Topic("place"): place})
    return differences(found)


def _names(runs: Sequence[Run]) -> list[str]:
    """The runs by their names or, where two have the same, by their addresses."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [run.uri for run in runs]


def _standing(run: Run, name: str) -> Compared:
    status = run.status(progress=False)
    return Compared(
        name=name,
        uri=run.uri,
        state=status.state,
        created=status.created,
        seconds=max(0.0, (status.ended or time.time()) - status.created),
        restarts=status.restarts,
        exit_code=status.exit_code,
    )


def _metrics(run: Run, names: Sequence[str], see: Callable[[Metric], object]) -> Iterator[Metric]:
    for each in run.observe(events=False):
        if isinstance(each, Metric) and (not names or each.name in names):
            see(each)
            yield each


def _compare_code(runs: Sequence[Run], names: Sequence[str]) -> Iterator[CodeDifference]:
    codes = [run.code() for run in runs]
    for name, code in zip(names[1:], codes[1:], strict=True):
        if codes[0] is not None and code is not None:
            yield _compare_two(names[0], codes[0], name, code)
        else:
            kept = ((names[0], codes[0]), (name, code))
            whose = " and ".join(run for run, each in kept if each is None)
            reason = f"that of {whose} was not shipped, and no copy was kept"
            yield CodeDifference(run=name, verdict="unknown", reason=reason)


def _compare_two(before: str, old: ShippedCode, after: str, new: ShippedCode) -> CodeDifference:
    if old.digest == new.digest:
        return CodeDifference(run=after, verdict="same")
    gone = [run for run, code in ((before, old), (after, new)) if code.archive is None]
    if gone or old.archive is None or new.archive is None:
        reason = f"the archives differ, and this machine does not have that of {' and '.join(gone)}"
        return CodeDifference(run=after, verdict="unknown", reason=reason)
    try:
        files = compare_archives(old.archive, new.archive, (before, after))
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        return CodeDifference(run=after, verdict="unknown", reason=f"an archive cannot be read: {error}")
    return CodeDifference(run=after, verdict="differs" if files else "same", files=tuple(files))
