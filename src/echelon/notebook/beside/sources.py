"""Which step each variable of a step comes from, of the steps that have run by now. Pure."""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterable, List, Mapping, Sequence, Tuple


class Unordered(Exception):
    """Two steps of which neither comes before the other have handed on different values of a name."""

    def __init__(self, name: str, steps: Sequence[str]) -> None:
        both = " and ".join(repr(each) for each in steps[:2])
        super().__init__("steps %s changed %r, and neither comes before the other" % (both, name))
        self.name, self.steps = name, steps


def last_of(makers: Collection[str], before: Mapping[str, Collection[str]]) -> List[str]:
    """Of some steps, those that come before none of the others."""
    return [each for each in makers if not any(each in before[other] for other in makers)]


def choose_sources(
    names: Iterable[str],
    published: Mapping[str, Mapping[str, str]],
    before: Mapping[str, Collection[str]],
    step: str,
) -> Dict[str, str]:
    """The step that each name comes from, of those that are there; `published` has, for each step before that
    has run, the names it handed on and the digest of each. Raises Unordered.
    """
    chosen = {}
    for name in names:
        makers = [each for each in before[step] if name in published.get(each, ())]
        last = sorted(last_of(makers, before))
        if len({published[each][name] for each in last}) > 1:
            raise Unordered(name, last)
        if last:
            chosen[name] = last[0]
    return chosen


def choose_state(
    published: Mapping[str, Mapping[str, str]], before: Mapping[str, Collection[str]], step: str
) -> Tuple[Dict[str, str], Dict[str, List[str]]]:
    """The step that each part of the process's state comes from, of all that is there. Of steps of which
    neither comes before the other, the last in the notebook's order; those that differ are returned too."""
    chosen: Dict[str, str] = {}
    unordered: Dict[str, List[str]] = {}
    order = list(before)
    for name in sorted({name for each in before[step] for name in published.get(each, ()) if name[0] == "@"}):
        makers = [each for each in before[step] if name in published.get(each, ())]
        last = sorted(last_of(makers, before), key=order.index)
        chosen[name] = last[-1]
        if len({published[each][name] for each in last}) > 1:
            unordered[name] = last
    return chosen, unordered


def find_sources(
    step: str,
    wanted: Iterable[str],
    read_later: Iterable[str],
    before: Mapping[str, Collection[str]],
    there: Mapping[str, Mapping[str, Any]],
) -> Tuple[Dict[str, Dict[str, Any]], Dict[str, str]]:
    """The step and the entry (None: it was deleted) that each variable comes from, and its digest; `there`
    has the names that each step before has handed on. Raises Unordered.
    """
    digests = {
        name: {variable: entry["digest"] for variable, entry in names.items()}
        for name, names in there.items()
    }
    chosen = choose_sources(wanted, digests, before, step)
    state, unordered = choose_state(digests, before, step)
    chosen.update(state)
    # What is stored together shares something: a step that changes one of them changes the others.
    groups = {(source, there[source][name]["entry"]) for name, source in chosen.items()}
    groups = {each for each in groups if each[1] is not None}
    beside = {
        name: source
        for name in read_later
        if name not in chosen
        for source, names in there.items()
        if name in names and (source, names[name]["entry"]) in groups
    }
    for name, source in choose_sources(beside, digests, before, step).items():
        if (source, there[source][name]["entry"]) in groups:
            chosen[name] = source
    # What an earlier step has written is read first: an object brings its class along, as it was then.
    ordered = sorted(chosen.items(), key=lambda item: len(before[item[1]]))
    entries: Dict[str, Dict[str, Any]] = {
        name: {"step": source, "entry": there[source][name]["entry"]} for name, source in ordered
    }
    for name, steps in unordered.items():
        entries[name]["unordered"] = steps
    return entries, {name: digests[source][name] for name, source in chosen.items()}
