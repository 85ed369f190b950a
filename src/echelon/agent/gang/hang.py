"""What keeps the ranks of a gang that stands still: who is waited for, and by whom. Pure.

`verdict` compares what the agents have seen of all ranks (`ranks/stuck/looking.py`). torch's flight recorder
numbers the collectives of a process group alike on all ranks, so that it is known which rank has not called
the one that the others wait in, or has called another. Without it the stacks tell: the odd one out."""

from __future__ import annotations

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Mapping

    Looks = Mapping[int, Mapping[str, Any]]  # by rank

# What a finding is.
MISSING = "missing"  # ranks have not called a collective that others wait in
DIFFERS = "differs"  # ranks have called another one, or with other sizes
CYCLE = "cycle"  # each waits in a collective of one process group for ranks that wait in one of another
TOGETHER = "together"  # all have called it, and it does not end
STACKS = "stacks"  # by the stacks alone: some are in a collective, or do not answer
ELSEWHERE = "elsewhere"  # no rank is known to wait for another one
WAITS = (MISSING, DIFFERS, CYCLE, TOGETHER, STACKS)  # in which a gang that stands still is stuck

_MOST_LINES = 5
_MOST_NAMED = 8
# Collectives that every rank calls with the same sizes.
_ALIKE = frozenset(("all_reduce", "allreduce", "broadcast", "reduce", "barrier", "reduce_scatter_base"))
_NOTHING = {"called": 0}
_BY_STACKS = "by stacks alone: no flight recorder tells of collectives"
_STOPPED = {"T": "is stopped (SIGSTOP)", "t": "is stopped by a debugger"}


class Finding:
    """What was seen: `sentence` says it, `lines` where the ranks are, those first that are waited for. These
    are `ranks`.
    """

    __slots__ = ("kind", "lines", "ranks", "sentence")

    def __init__(self, kind: str, ranks: list[int], sentence: str, lines: list[str]) -> None:
        self.kind = kind
        self.ranks = ranks
        self.sentence = sentence
        self.lines = lines


def verdict(looks: Looks, gone: Mapping[int, str] | None = None) -> Finding:
    """The ranks that keep the others waiting. `looks` has what was seen of the ranks that run, `gone` a few
    words on those that have ended ("had exited 0").
    """
    gone = gone or {}
    groups = groups_of(looks)
    found = _differing(groups, looks) or _missing(groups, looks, gone)
    found = found or _together(groups) or _by_stacks(looks)
    kind, ranks, sentence = found
    lines = _lines(looks, ranks)
    return Finding(kind, ranks, sentence, [*lines, _BY_STACKS] if kind == STACKS else lines)


def why_given_up(looks: Looks, gone: Mapping[int, str], rank: object) -> Finding | None:
    """Who kept a rank waiting whose library of collectives gave up, if recorders tell."""
    if not has_recorder(looks):
        return None
    found = verdict(looks, gone)
    waited = found.kind in (DIFFERS, CYCLE) or (found.kind == MISSING and rank not in found.ranks)
    return found if waited else None


def state_of(looks: Looks) -> object:
    """What has to change while a gang goes on: the collectives that its ranks have called and that are done,
    or, where no recorder tells, where they are.
    """
    known = {rank: look["recorder"]["groups"] for rank, look in looks.items() if look.get("recorder")}
    if any(known.values()):
        return sorted(
            (rank, name, group["called"], group["done"])
            for rank, groups in known.items()
            for name, group in groups.items()
        )
    return sorted((rank, look.get("trace") or 0, look.get("place") or "") for rank, look in looks.items())


def unchanged_for(looks: Looks) -> float | None:
    """How long before it was looked at a rank has last called a collective; None where no recorder tells."""
    ages = []
    for look in looks.values():
        groups = look["recorder"]["groups"] if look.get("recorder") else {}
        called = [call[3] for group in groups.values() for call in group["calls"].values()]
        if called and isinstance(look.get("at"), float):
            ages.append(look["at"] - max(called))
    return min(ages, default=None)


def has_recorder(looks: Looks) -> bool:
    """Whether a rank has told of collectives."""
    return any(look.get("recorder") and look["recorder"]["groups"] for look in looks.values())


def is_debugged(looks: Looks) -> bool:
    """Whether a rank is in a debugger, and the others wait for its user."""
    return any(look.get("debugged") or look.get("state") == "t" for look in looks.values())


class Group:
    """A process group: its members among our ranks, and what the recorder of each tells."""

    __slots__ = ("known", "members", "name")

    def __init__(self, name: str, members: list[int]) -> None:
        self.name = name
        self.members = members
        self.known: dict[int, Mapping[str, Any]] = {}

    def waiting(self) -> dict[int, int]:
        """The ranks that wait in a collective, with the number of the first that is not done."""
        return {rank: one["done"] + 1 for rank, one in self.known.items() if one["called"] > one["done"]}

    def call(self, number: int) -> list[Any] | None:
        """That collective, as the first rank that knows it called it."""
        calls = (one["calls"].get(str(number)) for _, one in sorted(self.known.items()))
        return next((call for call in calls if call), None)


def groups_of(looks: Looks) -> list[Group]:
    """The process groups that recorders tell of; none if ranks say the same of themselves, as where each of
    them is a world of its own.
    """
    recorders = {rank: look["recorder"] for rank, look in looks.items() if look.get("recorder")}
    own = {rec["rank"]: rank for rank, rec in recorders.items() if isinstance(rec.get("rank"), int)}
    if len(own) < len([1 for rec in recorders.values() if rec["groups"]]):
        return []
    groups: dict[str, Group] = {}
    for rank, rec in sorted(recorders.items()):
        for name, one in rec["groups"].items():
            members = one.get("ranks") or list(own)
            # Of a rank that does not answer, torch's number is that of the run.
            ours = sorted({own.get(each, each) for each in members})
            groups.setdefault(name, Group(name, ours)).known[rank] = one
    return [groups[name] for name in sorted(groups)]


def _differing(groups: list[Group], looks: Looks) -> tuple[str, list[int], str] | None:
    """Ranks that have called another collective under the same number, or with other sizes."""
    for group in groups:
        known = group.known
        if len(known) < 2:
            continue
        first = min(one["done"] for one in known.values()) + 1
        last = max(one["called"] for one in known.values())
        for number in range(max(first, last - 1000), last + 1):
            calls = {rank: one["calls"].get(str(number)) for rank, one in known.items()}
            ways: dict[tuple[Any, ...], list[int]] = {}
            for rank, call in sorted(calls.items()):
                if call:
                    ways.setdefault(_way(call), []).append(rank)
            if len(ways) < 2:
                continue
            usual, *others = sorted(ways, key=lambda way: (-len(ways[way]), ways[way]))
            odd = sorted(rank for way in others for rank in ways[way])
            parts = [
                "%s called %s" % (_names(ways[way]), _describe(number, calls[ways[way][0]], group, looks))
                for way in (*others, usual)
            ]
            ranks = odd if len(ways[usual]) > len(odd) else sorted([*odd, *ways[usual]])
            return DIFFERS, ranks, "%s, where %s" % (", ".join(parts[:-1]), parts[-1])
    return None


def _way(call: list[Any]) -> tuple[Any, ...]:
    return (call[0], call[1], call[2]) if call[0] in _ALIKE else (call[0],)


def _missing(groups: list[Group], looks: Looks, gone: Mapping[int, str]) -> tuple[str, list[int], str] | None:
    """Ranks that have not called a collective that others wait in. Those come first that wait in none
    themselves; if there are none of these, the groups wait for each other.
    """
    waits = {rank for group in groups for rank in group.waiting()}
    edges: list[tuple[Group, int, list[int], list[int]]] = []
    for group in groups:
        waiting = group.waiting()
        if not waiting:
            continue
        number = min(waiting.values())
        # A member whose recorder does not know the group has called nothing in it, or long ago.
        absent = [rank for rank in group.members if group.known.get(rank, _NOTHING)["called"] < number]
        there = sorted(rank for rank, first in waiting.items() if first == number)
        if not absent:
            continue
        free = [rank for rank in absent if rank not in waits]
        if free:
            what = _describe(number, group.call(number), group, looks)
            return MISSING, free, _say_missing(free, there, what, looks, gone, group)
        edges.append((group, number, there, absent))
    if not edges:
        return None
    # Calls that do not wait, of a rank that is no longer in a collective: it is the one that has gone on.
    away = sorted(
        {rank for edge in edges for rank in edge[3] if looks.get(rank, {}).get("collective") is False}
    )
    parts = []
    for group, number, there, absent in edges:
        what = _describe(number, group.call(number), group, looks, " of process group %s" % group.name)
        parts.append("%s %s for %s in %s" % (_names(there), _verb(there, "waits"), _names(absent), what))
    ranks = sorted({rank for edge in edges for rank in edge[3]})
    if away and len(away) < len(ranks):
        return MISSING, away, ", ".join(parts)
    return CYCLE, ranks, "deadlock of process groups: %s" % ", and ".join(parts)


def _say_missing(
    free: list[int],
    there: list[int],
    what: str,
    looks: Looks,
    gone: Mapping[int, str],
    group: Group,
) -> str:
    ways: dict[str, list[int]] = {}
    for rank in free:
        if rank in gone:
            way = gone[rank] + " before"
        elif looks.get(rank, {}).get("state") in _STOPPED:
            way = _STOPPED[looks[rank]["state"]] + " before"
        elif rank in group.known or looks.get(rank, {}).get("recorder"):
            way = "never called"
        else:
            way = "did not answer, and may not have called"
        ways.setdefault(way, []).append(rank)
    parts = ["%s %s %s" % (_names(ranks), _plural(ranks, way), what) for way, ranks in ways.items()]
    return "%s; %s %s in it" % ("; ".join(parts), _names(there), _verb(there, "waits"))


def _together(groups: list[Group]) -> tuple[str, list[int], str] | None:
    """A collective that all have called, and that does not end everywhere."""
    for group in groups:
        waiting = group.waiting()
        if waiting:
            number = min(waiting.values())
            there = sorted(rank for rank, first in waiting.items() if first == number)
            what = _describe(number, group.call(number), group, {})
            left = sorted(set(group.known) - set(there))
            more = ", which %s %s left" % (_names(left), _verb(left, "has")) if left else ""
            who = "all %d ranks have called" % len(there) if not left else "%s %s in" % (
                _names(there),
                _verb(there, "waits"),
            )  # fmt: skip
            return TOGETHER, there, "%s %s%s%s" % (who, what, more, "" if left else ", and it does not end")
    return None


def _by_stacks(looks: Looks) -> tuple[str, list[int], str]:
    """The odd one out: ranks that are in no collective while others are, or that do not answer."""
    silent = [rank for rank, look in sorted(looks.items()) if look.get("state") in _STOPPED]
    inside = [rank for rank, look in sorted(looks.items()) if look.get("collective")]
    outside = [rank for rank in sorted(looks) if rank not in inside]
    if len(looks) > 1 and (silent or inside):
        odd = silent or outside or _rarest(looks)
        if not odd:
            return STACKS, inside, _say_places(inside, looks)
        others = [rank for rank in sorted(looks) if rank not in odd and (rank in inside or not inside)]
        parts = [_say_places(odd, looks)]
        if others:
            parts.append(_say_places(others, looks))
        return STACKS, odd, "; ".join(parts)
    odd = _rarest(looks)
    return ELSEWHERE, odd, _say_places(odd or sorted(looks), looks)


def _rarest(looks: Looks) -> list[int]:
    """The ranks at the place where the fewest are, if most are at another one."""
    places: dict[str, list[int]] = {}
    for rank, look in sorted(looks.items()):
        places.setdefault(_where(look), []).append(rank)
    fewest = min(places.values(), key=len, default=[])
    return fewest if 2 * len(fewest) < len(looks) else []


def _say_places(ranks: list[int], looks: Looks) -> str:
    """Where ranks are, those of the same place together."""
    places: dict[str, list[int]] = {}
    for rank in ranks:
        places.setdefault(_where(looks.get(rank, {})), []).append(rank)
    shown = [
        "%s %s" % (_names(each), _plural(each, place if place in _STOPPED.values() else "is in " + place))
        for place, each in list(places.items())[:3]
    ]
    return ", ".join(shown)


def _where(look: Mapping[str, Any]) -> str:
    state = look.get("state")
    if state in _STOPPED:
        return _STOPPED[state]
    return str(look.get("place") or "a place that is not known")


def _lines(looks: Looks, first: list[int]) -> list[str]:
    """Where ranks are, a line for each place, those that are waited for first."""
    order = [rank for rank in first if rank in looks] + [rank for rank in sorted(looks) if rank not in first]
    places: dict[tuple[bool, str], list[int]] = {}
    for rank in order:
        text = _where(looks[rank])
        if looks[rank].get("does"):
            text += ", " + looks[rank]["does"]
        places.setdefault((rank in first, text), []).append(rank)
    lines = ["%s: %s" % (_names(ranks), text) for (_, text), ranks in places.items()]
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], "and %d more places" % more]


def _describe(
    number: int, call: list[Any] | None, group: Group, looks: Looks, which: str | None = None
) -> str:
    """`all_reduce 5,312 ([1024, 1024] float32)`; the group is told where it has not all ranks."""
    if which is None:
        part = looks and not set(looks) <= set(group.members)
        which = " of ranks %s" % _listed(group.members) if part else ""
    if call is None:
        return "collective %s%s" % ("{:,}".format(number), which)
    shape = " ".join(part for part in (str(call[1]), str(call[2])) if part)
    return "%s %s%s%s" % (call[0], "{:,}".format(number), which, " (%s)" % shape if shape else "")


def _verb(ranks: list[int], verb: str) -> str:
    """The verb for one rank or for several."""
    return verb if len(ranks) == 1 else {"waits": "wait", "is": "are", "has": "have"}[verb]


def _plural(ranks: list[int], text: str) -> str:
    return "are" + text[2:] if len(ranks) > 1 and text.startswith("is ") else text


def _names(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + _listed(ranks)


def _listed(numbers: list[int]) -> str:
    """0, 2, 4-9: of very many the beginning."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [
        text
        for run in runs
        for text in (["%d-%d" % (run[0], run[-1])] if len(run) > 3 else [str(number) for number in run])
    ]
    more = len(shown) - _MOST_NAMED
    return ", ".join(shown) if more <= 0 else ", ".join([*shown[:_MOST_NAMED], "..."])
