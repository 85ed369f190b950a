"""From pieces of output to metrics: the same whether lines come one by one or at once, read or parsed."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.metrics import reader as readers
from echelon.metrics.reader import AT_START, MetricReader, advance, read_all
from echelon.metrics.text import SEEN_JSON, parse
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.output.metric import Metric


def line(text: str, rank: int | None = 0, **more: object) -> LogLine:
    return LogLine(text=text, at=5.0, worker=0, rank=rank, **more)  # type: ignore[arg-type]


def found(*texts: str, patterns: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
    metrics = read_all(map(line, texts), MetricReader(patterns))
    return [(each.name, each.value, each.step, each.epoch) for each in metrics]


def by_parsing(text: str) -> list[Metric]:
    """The oracle: every line parsed by itself."""
    metrics, stands = [], AT_START
    for each in text.split("\n"):
        pairs, step, epoch, steps = parse(each)
        stands = advance(stands, step, epoch, steps)
        metrics += [Metric(name, value, 5.0, 0, *stands) for name, value in pairs]
    return metrics


def as_block(text: str) -> LogLine | LogBlock:
    first, newline, rest = text.partition("\n")
    return LogBlock(first=line(first), rest=rest) if newline else line(first)


def test_a_line_without_a_place_has_the_last_one_of_its_rank() -> None:
    assert found("epoch 1:", "loss=3", "step=2 loss=2", "val=1", "epoch=2 val=0") == [
        ("loss", 3.0, None, 1.0),
        ("loss", 2.0, 2, 1.0),
        ("val", 1.0, 2, 1.0),
        ("val", 0.0, None, 2.0),
    ]


def test_ranks_do_not_mix_and_agents_measure_nothing() -> None:
    lines = [line("step=1 a=1", 0), line("a=2", 1), line("a=3", None), line("a=4", 0)]
    assert [(each.rank, each.value, each.step) for each in read_all(lines, MetricReader())] == [
        (0, 1.0, 1),
        (1, 2.0, None),
        (0, 4.0, 1),
    ]


def test_a_line_in_pieces_is_one_line() -> None:
    pieces = [line("loss=0.", unfinished=True), line("other=1", 1), line("53"), line("a=1")]
    assert [each.value for each in read_all(pieces, MetricReader())] == [1.0, 0.53, 1.0]


def test_a_line_that_never_ends_is_not_kept() -> None:
    reader = MetricReader()
    for _ in range(100):
        assert reader.read(line("x" * 100_000, unfinished=True)) == []
        assert sum(map(len, reader._begun.values())) <= SEEN_JSON
    assert reader.read(line("end")) == []
    assert sum(map(len, reader._begun.values())) == 0


def test_the_state_of_a_bar_does_not_end_what_was_begun() -> None:
    pieces = [line("los", unfinished=True), line("1/4 [..] - a: 1 - loss: 2", progress=True), line("s=5")]
    values = [(each.name, each.value) for each in read_all(pieces, MetricReader())]
    assert values == [("a", 1.0), ("loss", 2.0), ("loss", 5.0)]


NUMBERS = st.sampled_from(
    ["1", "20", "0.5", "1e-3", "-2", "nan", "inf", "5.", "1.5", "007", "12:30", "1/3", ""]
)
SHAPES = st.sampled_from(
    [
        "step={} loss={} acc={}", "12:30:{} loss={} ({}%)", "Train Epoch: {} [{}/60 (1%)] Loss: {}",
        "Accuracy: {}/{} ({}%)", "epoch {} step {} top1={}", "{}/{} [==] - loss: {}", "top1={} top5={} x{}",
        "loss: {}, a: {} = {}", "{{'a': {}, 'b': {}, 'epoch': {}}}", '{{"a": {}, "b": {}, "c": {}}}',
        "plain text {} {} {}",
        '{{"step": {}, "loss": {}, "at": "12:30", "epoch": {}}}', '{{"ts": {}, "a": {}, "s": "\\"b\\": {}"}}',
        '{{"a": {}, "a": {}, "b1": {}, "c": {{"d": 1}}}}', '{{"t": "{}", "a": {}, "ok": true, "b": {} }}',
        "a={},b={}, c={}.", "x={} y={}, step {}", "\x1b[1mloss={}\x1b[0m a={} b={}",
        "a={}% b={} | c={}", "lr={}\tstep: {} mine: {}",
    ]
)  # fmt: skip
LINES = st.tuples(SHAPES, NUMBERS, NUMBERS, NUMBERS).map(lambda each: each[0].format(*each[1:]))
REPEATED = st.lists(
    st.tuples(SHAPES, st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=6)), max_size=6
).map(lambda groups: "\n".join(shape.format(*numbers) for shape, rows in groups for numbers in rows))


@pytest.mark.parametrize("together", [1, 2, 100])
@given(st.lists(REPEATED | LINES, min_size=1, max_size=4))
def test_what_is_read_at_once_is_what_parsing_every_line_gives(together: int, texts: list[str]) -> None:
    """Shapes of lines are learned on the way: they must never change what is found."""
    reader = MetricReader()
    stands_by_oracle = by_parsing("\n".join(texts))
    with patch.object(readers, "_TOGETHER", together):
        read = [metric for text in texts for metric in reader.read(as_block(text))]
    assert list(map(repr, read)) == list(map(repr, stands_by_oracle))


def test_a_place_that_is_written_in_an_unusual_way_is_no_shape() -> None:
    text = "\n".join(f"Train Epoch: {epoch} [1/60 (1%)] Loss: 1" for epoch in (-2, -3, 4, -5, 1))
    assert list(map(repr, MetricReader().read(as_block(text)))) == list(map(repr, by_parsing(text)))


def test_many_lines_of_one_shape() -> None:
    text = "\n".join(f"12:30:{step % 60:02} step={step} loss={1 / (step + 1)!r}" for step in range(1000))
    read = MetricReader().read(as_block(text))
    assert [(each.step, each.value) for each in read] == [(step, 1 / (step + 1)) for step in range(1000)]


def test_output_that_never_repeats_itself_is_not_remembered() -> None:
    reader = MetricReader()
    for number in range(3000):
        reader.read(line(f"{'x' * (number % 997)} loss={number}"))
    assert len(reader._shapes) <= 8
    assert reader._learned <= 256


def test_a_pattern_is_the_only_rule() -> None:
    pattern = r"loss is (?P<loss>\S+) at (?P<step>\d+)"
    assert found("loss is 0.5, at 3", "loss is no number at 4", "a=1", patterns=(pattern,)) == [
        ("loss", 0.5, 3, None)
    ]
    named = r"(?P<name>\w+)->(?P<value>\S+)"
    assert found("a->1 b->2%, c->three", patterns=(named,)) == [
        ("a", 1.0, None, None),
        ("b", 2.0, None, None),
    ]


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidJob):
        MetricReader(("(",))
    with pytest.raises(InvalidJob, match="too many"):
        MetricReader([r"(?P<a>\d)"] * 17)


def test_a_block_goes_on_with_what_was_begun() -> None:
    reader = MetricReader()
    reader.read(line("lo", unfinished=True))
    block = LogBlock(first=line("ss=1"), rest="loss=2\nloss=3")
    assert [each.value for each in reader.read(block)] == [1.0, 2.0, 3.0]
    assert reader.read(replace(block, first=line("x"), rest="")) == []
