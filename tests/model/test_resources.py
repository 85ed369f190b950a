"""Amounts and times as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.model.resources import (
    Amount,
    format_memory,
    parse_cpus,
    parse_duration,
    parse_memory,
    parse_size,
)

UNITS = {
    "": 1,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
}
UNITS |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
COUNTS = st.integers(1, 10**6)


@settings(deadline=None)
@given(COUNTS, st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_memory_is_a_count_of_a_unit(count: int, unit: str, space: str) -> None:
    if count * UNITS[unit] < 2**20:
        with pytest.raises(InvalidJob, match="less than a mebibyte"):
            parse_memory("memory", f"{count}{space}{unit}")
    else:
        assert parse_memory("memory", f"{count}{space}{unit}") == Amount(request=count * UNITS[unit])


def test_memory_without_its_unit() -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_memory("memory", 5)
    assert caught.value.hint == "did you mean 5Gi?"


@settings(deadline=None)
@given(COUNTS, COUNTS)
def test_request_and_limit(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert parse_memory("memory", f"{low}Mi:{high}Mi") == Amount(request=low * 2**20, limit=high * 2**20)
    assert parse_cpus("cpus", f"{low}m:{high}m") == Amount(request=low / 1000, limit=high / 1000)
    if low < high:
        with pytest.raises(InvalidJob, match="limit below its request"):
            parse_cpus("cpus", f"{high}:{low}")


@settings(deadline=None)
@given(COUNTS, st.sampled_from(sorted(UNITS)))
def test_a_size_is_memory_in_whole_bytes(count: int, unit: str) -> None:
    size = parse_size("shm", f"{count}{unit}")
    assert isinstance(size, int)
    assert size == count * UNITS[unit]


@pytest.mark.parametrize("text", ["1Gi:2Gi", "0.2", "0", "-1", "lots", "", None])
def test_no_size(text: object) -> None:
    with pytest.raises(InvalidJob) as caught:
        parse_size("shm", text)
    assert caught.value.field == "shm"
    assert "16Gi" in caught.value.hint


def test_cpus() -> None:
    assert parse_cpus("cpus", 2) == Amount(request=2)
    assert parse_cpus("cpus", 0.5) == Amount(request=0.5)
    assert parse_cpus("cpus", " 500m : 2 ") == Amount(request=0.5, limit=2)


@pytest.mark.parametrize(
    "text",
    ["", "lots", "1:2:3", ":", "1:", True, "nan", "inf", "1:inf", "1:nan", math.nan, math.inf, "1x", [1]],
)
def test_no_amount(text: object) -> None:
    for parse in (parse_cpus, parse_memory):
        with pytest.raises(InvalidJob, match=r"field: .* is not an amount") as caught:
            parse("field", text)
        assert caught.value.hint.startswith("use ")
        assert caught.value.value is text


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "Gi", "16gi", "16 giB", "1e3", "Gi", "-1Gi"])
def test_no_memory(text: str) -> None:
    with pytest.raises(InvalidJob, match="is not an amount"):
        parse_memory("memory", text)


def test_nothing_is_no_amount() -> None:
    for parse in (parse_cpus, parse_memory):
        with pytest.raises(InvalidJob, match="is not above zero"):
            parse("field", 0)
    with pytest.raises(InvalidJob, match="is not above zero"):
        parse_cpus("cpus", "-1")


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(1, 99))
def test_a_time_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert parse_duration("timeout", text) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@settings(deadline=None)
@given(st.floats(min_value=1e-3, max_value=1e9))
def test_a_time_in_seconds(seconds: float) -> None:
    assert parse_duration("timeout", seconds) == seconds
    assert parse_duration("timeout", f"{seconds:.6f}") == float(f"{seconds:.6f}")


def test_times() -> None:
    assert parse_duration("timeout", "90m") == 5400
    assert parse_duration("timeout", "1h30m") == 5400
    assert parse_duration("timeout", "1.5h") == 5400
    assert parse_duration("timeout", "90") == 90
    assert parse_duration("timeout", 90) == 90


@pytest.mark.parametrize(
    "text",
    ["", "soon", "5 minutes", "5x", "m", "-5", "1.5.5", True, 0, -1, "0s", math.nan, math.inf, "9" * 400],
)
def test_no_time(text: object) -> None:
    with pytest.raises(InvalidJob, match=r"timeout: .* is not a time") as caught:
        parse_duration("timeout", text)
    assert "30s, 5m" in caught.value.hint


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1000 * 2**20, "1000 MiB"),
        (1023.9 * 2**20, "1024 MiB"),
        (16 * 2**30, "16 GiB"),
        (2048 * 2**40, "2048 TiB"),
    ],
)
def test_memory_for_people(amount: float, text: str) -> None:
    assert format_memory(amount) == text


@settings(deadline=None)
@given(st.floats(min_value=0, max_value=2.0**60))
def test_memory_for_people_is_right_to_three_digits(amount: float) -> None:
    number, unit = format_memory(amount).split()
    sizes = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    assert "e" not in number
    assert float(number) * sizes[unit] == pytest.approx(amount, rel=5.1e-3, abs=0.5)
