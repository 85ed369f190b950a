"""What a plain word means in YAML 1.2, where PyYAML alone would say something else."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.jobfile.conversion import Written
from echelon.jobfile.document import parse, plain

TEXTS = """
    y n Y N yes no Yes NO on off On OFF tRUE nuLL NULLL inf nan .infinity . + - = <<
    1_000 0b11 0o8 0xg +0x1 -0o7 1e 1.e+ 0.1.2 1,000 12:30 190:20:30 2024-01-01 2024-01-01T10:00:00Z
    --flag 1Gi 90m {output}
"""


@pytest.mark.parametrize("word", TEXTS.split())
def test_is_text(word: str) -> None:
    assert plain(word) == word
    if word[0] != "{" and word != "-":
        assert parse(word, "x")[0] == word


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("False", False),
        ("FALSE", False),
        ("0", 0),
        ("-12", -12),
        ("+12", 12),
        ("010", 10),
        ("08", 8),
        ("0o10", 8),
        ("0xFf", 255),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1e-3", 0.001),
        ("-1.5E+2", -150.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
    ],
)
def test_is_not_text(word: str, value: object) -> None:
    assert plain(word) == Written(text=word, value=value)  # type: ignore[arg-type]
    found = parse(f"[{word}]", "x")[0]
    assert found == [Written(text=word, value=value)]  # type: ignore[arg-type]
    assert type(found[0].value) is type(value)


def test_not_a_number() -> None:
    found = plain(".nan")
    assert isinstance(found, Written)
    assert isinstance(found.value, float)
    assert math.isnan(found.value)


def test_quotes_and_a_tag_make_text() -> None:
    assert parse("""['1', "true", !!str 3]""", "x")[0] == ["1", "true", "3"]
    assert parse("a: |-\n  null\n", "x")[0] == {"a": "null"}


def test_keys_are_always_text() -> None:
    assert list(parse("{on: a, 1: b, true: c, 1.50: d}", "x")[0]) == ["on", "1", "true", "1.50"]


def test_lines() -> None:
    lines = parse("a: 1\n\nb:\n  - x\n  - y: 2\n", "x")[1]
    assert lines == {(): 1, ("a",): 1, ("b",): 3, ("b", 0): 4, ("b", 1): 5, ("b", 1, "y"): 5}


@settings(deadline=None)
@given(
    st.recursive(
        st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=8,
    )
)
def test_what_pyyaml_writes_is_read_back(value: object) -> None:
    # It quotes whatever 1.1 would misread, so both versions of YAML read the same from it.
    def bare(found: object) -> object:
        if isinstance(found, Written):
            return found.value
        if isinstance(found, dict):
            return {key: bare(each) for key, each in found.items()}
        return [bare(each) for each in found] if isinstance(found, list) else found

    assert bare(parse(yaml.safe_dump(value), "x")[0]) == value
