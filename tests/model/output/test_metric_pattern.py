"""A user's patterns for metrics: which are refused, and that none takes for ever."""

from __future__ import annotations

import pytest

from echelon.errors import InvalidJob
from echelon.model.meaning import to_job
from echelon.model.output.metric_pattern import SEEN, parse_metric_pattern
from echelon.model.settings import Settings


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (r"loss is (?P<loss>\S+) at (?P<step>\d+)", SEEN[0]),
        (r"(?P<name>[a-z_]+) = (?P<value>[-+.\deE]+)", SEEN[0]),
        (r"\| loss\s+(?P<loss>[\d.]+) \| ppl\s+(?P<ppl>[\d.]+)", SEEN[0]),
        (r"loss.*?(?P<loss>\d+\.\d+)", SEEN[1]),
        (r"(?i)loss (?P<loss>\S++)x", SEEN[0]),
        (r"(?:ab)+ (?P<a>\d+)", SEEN[0]),
        (r"a.*(?P<a>\d+) .*b", SEEN[2]),
    ],
)
def test_sound_patterns(text: str, seen: int) -> None:
    assert parse_metric_pattern(text).seen == seen


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(", "is not a regular expression"),
        (r"loss (\d+)", "gives no metric"),
        (r"(?P<step>\d+)", "gives no metric"),
        (r"(?P<name>\w+)", "gives no metric"),
        (r"(?P<a>(\d+)+)x", "repeats what repeats"),
        (r"(?P<a>(\d|\d\d)*)x", "repeats what repeats"),
        (r"(?P<a>(?:a?){30}b)", "repeats what repeats"),
        (r"(?P<a>((?:ab*)c)+)x", "repeats what repeats"),
        (r"(?P<a>a+)(?P=a)", "refers to a group"),
        (r"(?x) (?P<a> a+ )", "verbose"),
        (r"a.*b.*c.*(?P<a>\d)", "leaves it open too often"),
        ("(?P<a>" + "a" * 1000 + ")", "is too long"),
    ],
)
def test_refused_patterns(text: str, words: str) -> None:
    with pytest.raises(InvalidJob, match=words) as refused:
        parse_metric_pattern(text)
    assert refused.value.hint


@pytest.mark.parametrize("text", [r"a.*(?P<a>\d+) .*b", r"\w*\w*(?P<a>\w*)-", r"(?P<a>.+),(?P<b>.+),z"])
def test_a_hostile_line_ends(text: str) -> None:
    parsed = parse_metric_pattern(text)
    for hostile in ("a1" * 5000, "a" * 10_000, "1,a" * 3000, "a1 b" * 3000):
        assert list(parsed.pattern.finditer(hostile[: parsed.seen])) is not None


def test_a_job_keeps_its_patterns_and_refuses_what_is_none() -> None:
    pattern = r"loss (?P<loss>\S+)"
    job = to_job(Settings(script="train.py", metric_pattern=[pattern]), name="fm")
    assert job.metric_patterns == (pattern,)
    with pytest.raises(InvalidJob, match="metric_pattern"):
        to_job(Settings(script="train.py", metric_pattern=["("]), name="fm")
