"""Every run of a namespace, for `ps`: from three lists, whatever their number.

Only one thing cannot be seen from outside: that a run is over while its workers stay for their results. So of
a run that seems to go on, the leader's last lines are read, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from echelon.engines.kubernetes import history, labels, observe, workers
from echelon.engines.kubernetes.api import Api, Object
from echelon.engines.kubernetes.logs import is_last_word, split
from echelon.engines.kubernetes.podtask import hold_of
from echelon.errors import EchelonError, StateTrouble
from echelon.model.log import parse_line
from echelon.model.run import Record, RunRef, opening_status, summarise
from echelon.model.status import RunSummary, Status, fold

_AT_ONCE = 8
_LAST = 3  # lines, of which one is the agent's last word if it has said it


def list_runs(
    api: Api, ref_of: Callable[[str], RunRef], look: Callable[[RunRef], Status]
) -> list[RunSummary]:
    """The runs, the newest first; `look` says how one stands, by all that is known of it."""
    records = api.list("ConfigMap", selector=f"{labels.COMPONENT}={labels.RECORD}").items
    if not records:
        return []
    ours = f"{labels.MANAGED_BY}=echelon,{labels.COMPONENT}={labels.WORKER}"
    jobs, pods = _by_run(api.list("Job", selector=ours).items), _by_run(api.list("Pod", selector=ours).items)
    found: list[RunSummary] = []
    held: list[tuple[Record, RunSummary, Object]] = []
    for obj in records:
        with suppress(StateTrouble):  # of another version, or broken: its own commands say which
            record = history.read_record(obj, ref_of(obj["metadata"]["name"]))
            mine = pods.get(record.ref.name, [])
            end = history.written_end(obj)
            if end is not None:
                found.append(summarise(record, fold(opening_status(record), [end])))
                continue
            row = observe.summary(record, obj, jobs.get(record.ref.name, []), mine)
            leader = [pod for pod in workers.leader_pods(mine) if workers.is_running(pod)]
            if leader and hold_of(record) > 0:
                held.append((record, row, leader[-1]))
            else:
                found.append(row)
    found += _look_closer(api, held, look)
    return sorted(found, key=lambda each: -each.created)


def _look_closer(
    api: Api, held: Sequence[tuple[Record, RunSummary, Object]], look: Callable[[RunRef], Status]
) -> list[RunSummary]:
    def row_of(each: tuple[Record, RunSummary, Object]) -> RunSummary:
        record, row, leader = each
        with suppress(EchelonError):
            if _is_over(api, leader):
                return summarise(record, look(record.ref))
        return row

    if not held:
        return []
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(row_of, held))


def _is_over(api: Api, leader: Object) -> bool:
    """Whether the leader has said its last word; it stays to keep its results."""
    with api.logs(leader["metadata"]["name"], container=labels.CONTAINER, tail=_LAST) as pieces:
        return any(is_last_word(parse_line(raw, 0), 0) for raw in split(pieces, with_rest=True))


def _by_run(items: Sequence[Object]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for item in items:
        found.setdefault(item["metadata"]["labels"][labels.RUN], []).append(item)
    return found
