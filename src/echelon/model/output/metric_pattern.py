"""A user's own pattern for metrics (`--metric-pattern`), checked where it is given and where it is read.

Its named groups are metrics: `(?P<loss>\\S+)`; those called `step`, `steps` and `epoch` give the position; or
`name` and `value` are the metric's. A pattern comes from a record, which another user may have written, and
is applied to lines that any program has written; and Python's `re` can take for ever. So a pattern may not
repeat what repeats, and the more of its repetitions leave it open where they end (`.*`), the less of a line
it sees: a line costs it seconds at the worst, and microseconds if it is an ordinary one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from echelon.errors import InvalidJob
from echelon.values import frozen

MOST = 16
LONGEST = 500  # characters of a pattern
# Characters of a line, for so many open repetitions: with n of them, a line of length L can take
# L^(n+2) / (n+2)! steps, which is less than a second for these.
SEEN = (4096, 512, 160)
_FIELD = "metric_pattern"
_EXAMPLE = r"for example 'loss is (?P<loss>\S+) at (?P<step>\d+)'"
POSITION = frozenset({"step", "steps", "epoch"})
_TOKEN = re.compile(
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDsSwW]|\.)"
    r"|(?P<anchor>\\[AbBZ]|[\^$]|\(\?#[^)]*\)|\(\?[a-zA-Z]+\))"
    r"|(?P<open>\((?:\?(?:P<\w+>|[a-zA-Z-]*:|<?[=!]|>))?)"
    r"|(?P<close>\))|(?P<either>\|)|(?P<repeat>(?:[*+]|\{\d*,\d*\}|\{\d+\})[?+]?)|(?P<maybe>\?[?+]?)"
    r"|(?P<char>\\.|.)",
    re.DOTALL,
)
_ONE = re.compile(r"\{[01]?(?:,[01])?\}[?+]?")


@frozen
class MetricPattern:
    """A pattern, and how many characters of a line it may see."""

    pattern: re.Pattern[str]
    seen: int


def parse_metric_patterns(texts: Sequence[str]) -> list[MetricPattern]:
    """All patterns of a job; each is applied to every line, so they are few."""
    if len(texts) > MOST:
        raise InvalidJob(_FIELD, len(texts), "are too many", hint=f"{MOST} at most; `a|b` is one")
    return [parse_metric_pattern(text) for text in texts]


@lru_cache(maxsize=64)
def parse_metric_pattern(text: str) -> MetricPattern:
    """The compiled pattern; raises InvalidJob for one that gives no metric, or that may take too long."""
    if len(text) > LONGEST:
        raise InvalidJob(_FIELD, f"{text[:40]}…", "is too long", hint=f"{LONGEST} characters at most")
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidJob(_FIELD, text, f"is not a regular expression: {error}", hint=_EXAMPLE) from None
    groups = pattern.groupindex.keys()
    if ("name" in groups) != ("value" in groups) or not groups - POSITION:
        hint = f"name the groups of metrics, or two groups `name` and `value`; {_EXAMPLE}"
        raise InvalidJob(_FIELD, text, "gives no metric", hint=hint)
    if pattern.flags & re.VERBOSE or re.search(r"\\[1-9]|\(\?P=|\(\?\(", text):
        raise InvalidJob(_FIELD, text, "refers to a group, or is verbose", hint="write it out")
    tokens = [(found.lastgroup or "", found[0]) for found in _TOKEN.finditer(text)]
    if _repeats_repetition(tokens):
        hint = "what stands in ( )+ or ( )* must have a fixed length and no alternative"
        raise InvalidJob(_FIELD, text, "repeats what repeats, which can take for ever", hint=hint)
    open_ends = _open_repetitions(tokens)
    if open_ends >= len(SEEN):
        hint = r"write \S+ or [^,]* instead of .*, and what comes after it"
        raise InvalidJob(_FIELD, text, "leaves it open too often where a part ends", hint=hint)
    return MetricPattern(pattern=pattern, seen=SEEN[open_ends])


def _is_repeat(kind: str, token: str) -> bool:
    return kind == "repeat" and not _ONE.fullmatch(token)


def _repeats_repetition(tokens: list[tuple[str, str]]) -> bool:
    """Whether a group is repeated that itself has a repetition, an alternative or something optional: a line
    could then be split in exponentially many ways.
    """
    groups = [False]  # for each open group, whether it has something of the kind
    closed = False  # whether the group that was just closed has
    for kind, token in tokens:
        if _is_repeat(kind, token) and closed:
            return True
        if kind == "open":
            groups.append(False)
        elif kind == "close":
            closed = groups.pop()
            groups[-1] = groups[-1] or closed
            continue
        elif kind in ("either", "maybe", "repeat"):
            groups[-1] = True
        closed = False
    return False


def _open_repetitions(tokens: list[tuple[str, str]]) -> int:
    """How many repetitions can end in several places: what comes next may be a part of them, too."""
    found = 0
    solid = [(kind, token) for kind, token in tokens if kind not in ("open", "close", "anchor")]
    for at, (kind, token) in enumerate(solid):
        gives_back = len(token) == 1 or not token.endswith("+")
        if not _is_repeat(kind, token) or not gives_back:
            continue
        repeated = solid[at - 1]
        after = solid[at + 1] if at + 1 < len(solid) else None
        then = solid[at + 2] if at + 2 < len(solid) else ("", "")
        if after is None:
            continue
        may_lack = then[0] == "maybe" or (then[0] == "repeat" and then[1].startswith(("*", "{0", "{,")))
        if after[0] not in ("set", "char") or may_lack or _overlap(repeated[1], after[1]):
            found += 1
    return found


def _overlap(one: str, other: str) -> bool:
    """Whether a character can be both; those beyond ASCII are like one of these."""
    try:
        first, second = re.compile(one), re.compile(other)
    except re.error:
        return True
    letters = [chr(number) for number in range(128)] + ["é", "中", "\u00a0", "٣", "\u0085"]
    return any(first.fullmatch(each) and second.fullmatch(each) for each in letters)
