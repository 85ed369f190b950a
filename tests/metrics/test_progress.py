"""From pieces of output to how far ranks have come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.metrics.progress import ProgressReader
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.output.progress import Progress, words


def line(text: str, at: float = 0.0, rank: int | None = 0, **more: object) -> LogLine:
    return LogLine(text=text, at=at, worker=0, rank=rank, **more)  # type: ignore[arg-type]


def after(*texts: str, every: float = 1.0, patterns: tuple[str, ...] = ()) -> Progress:
    """Where rank 0 stands after these lines, one a second."""
    reader = ProgressReader(patterns)
    for number, text in enumerate(texts):
        reader.read(line(text, at=1000 + number * every))
        reader.of(0)
    found = reader.of(0)
    assert found is not None
    return found


def test_steps_of_an_epoch_whose_number_is_not_told() -> None:
    found = after(*(f"Train Epoch: 2 [{step}/60000 (1%)]\tLoss: 0.5" for step in (0, 640, 1280)))
    assert (found.epoch, found.epochs, found.step, found.steps) == (2.0, None, 1280, 60000)
    assert (found.of, found.rate, found.metrics) == ("epoch", 640.0, {"Loss": 0.5})
    assert found.done == pytest.approx(1280 / 60000)
    assert found.left == pytest.approx((60000 - 1280) / 640)
    assert words(found) == ["epoch 2", "1280/60000", "2%", "640/s", "1 m 31 s left of the epoch", "Loss 0.5"]


def test_epochs_alone() -> None:
    found = after("Epoch 1/10 loss=0.9", "Epoch 2/10 loss=0.8", every=30)
    assert (found.done, found.of, found.rate) == (0.2, "run", None)
    assert found.left == pytest.approx(240)
    assert after("Epoch 3/10").done == 0.2  # it has just begun


def test_a_bar_below_its_epoch_as_keras_prints_it() -> None:
    bar = " 5/20 ━━━━━━━━ 1s 100ms/step - loss: 0.3"
    found = after("Epoch 1/2", bar, "20/20 ━━━━━ 9s 100ms/step - loss: 0.3", "Epoch 2/2", bar)
    assert (found.epoch, found.epochs, found.step, found.steps) == (2.0, 2, 5, 20)
    assert found.done == pytest.approx(0.625)
    assert found.left == pytest.approx(1.5)
    assert words(found) == ["epoch 2/2", "5/20", "62%", "10/s", "2 s left", "loss 0.3"]


def test_epochs_from_zero() -> None:
    assert after("Epoch 0/9", "Epoch 9/9 loss=1").done == 1.0
    assert after("Epoch 0/9  ━━━╸━━━ 5/10 0:00:05 • 0:00:06 7.50it/s").done == pytest.approx(0.05)


def test_an_epoch_that_is_counted_in_two_ways() -> None:
    bars = "epochs:  33%| 1/3 [00:00<00:01,  3.00it/s]  steps:  50%| 10/20 [00:00<00:00, 41.00it/s]"
    found = after("epoch 0: loss: 0.1", bars, "epoch 1: loss: 0.2")
    assert (found.epoch, found.epochs, found.done, found.metrics) == (2.0, 3, 0.5, {"loss": 0.2})


def test_steps_that_go_on_from_epoch_to_epoch() -> None:
    found = after("epoch 1 step 100/1000", "epoch 2 step 200/1000", "epoch 2 step 300/1000")
    assert (found.done, found.of) == (0.3, "run")
    assert found.left == pytest.approx(7.0)


def test_an_epoch_beside_other_figures_does_not_count_steps() -> None:
    bar = "  4%|▎         | 40/1000 [00:10<05:20,  3.00it/s]"
    found = after(bar, "{'loss': 0.53, 'learning_rate': 5e-05, 'epoch': 1.33}", bar)
    assert (found.step, found.steps, found.epoch, found.done) == (40, 1000, 1.33, 0.04)
    assert (found.of, found.left) == ("run", 320.0)
    assert found.metrics == {"loss": 0.53, "learning_rate": 5e-05}


def test_a_count_without_an_end_between_two_states_of_a_bar() -> None:
    bar = "  4%|▎         | 40/1000 [00:10<05:20,  3.00it/s]"
    assert after(bar, "step=7 lr=0.1").steps == 1000
    assert (after(bar, "step=7 lr=0.1", every=100).step, after("step=7 lr=0.1").step) == (7, 7)


def test_a_speed_is_that_of_the_last_minute_and_of_one_going() -> None:
    reader = ProgressReader()
    for second in range(200):
        reader.read(line(f"step {second if second < 100 else 100 + (second - 100) * 5}/9999", at=second))
        reader.of(0)
    found = reader.of(0)
    assert found is not None
    assert found.rate == pytest.approx(5.0)
    reader.read(line("step 3/9999", at=200))
    again = reader.of(0)
    assert again is not None
    assert (again.step, again.rate, again.left) == (3, None, None)


def test_a_slow_one() -> None:
    assert "30/min" in words(after("step 1/9", "step 2/9", every=2))


def test_pieces_blocks_and_ranks() -> None:
    reader = ProgressReader()
    reader.read(line("step 3", unfinished=True))
    reader.read(line("50%|#####     | 5/10 [00:01<00:01, 5.00it/s]", rank=1, progress=True))
    reader.read(line("step 9/9", rank=None))
    reader.read(line("/4 loss=1"))
    found = reader.lowest()
    assert found is not None
    assert (found.rank, found.step, found.steps) == (0, 3, 4)
    reader.read(LogBlock(first=line("text", rank=1), rest="\n".join(f"step {n}/500" for n in range(400))))
    last = reader.of(1)
    assert last is not None
    assert (last.step, last.steps) == (399, 500)
    assert reader.lowest([1, 2]) == last
    assert reader.of(2) is None


def test_a_users_pattern() -> None:
    pattern = r"at (?P<step>\d+) of (?P<steps>\d+): (?P<acc>\S+)"
    found = after("at 3 of 12: 0.5", "nothing", patterns=(pattern,))
    assert (found.step, found.steps, found.done, found.metrics) == (3, 12, 0.25, {"acc": 0.5})
    assert after("Epoch 1/4", "acc=3", patterns=(pattern,)).epochs == 4


LINES = st.sampled_from(
    ["Epoch 1/3", "Epoch 0/3", "Epoch 3/1", "step 5/2", "step 0/0", "step 1/4 loss=nan", "epoch=2 step=1 a=1",
     " 50%|#| 5/10 [00:01<00:01, 5.00it/s]", "epochs: 0%| 0/0 [00:00<?, ?it/s]", "━ 45% 0:00:02",
     "{'epoch': 2}", "1/4 ━━ 1s 0ms/step", "text", "", "Train Epoch: 1 [1/6 (1%)]"]
)  # fmt: skip


@given(st.lists(st.tuples(LINES, st.floats(-5, 100)), max_size=30))
def test_whatever_comes_in_whatever_order(lines: list[tuple[str, float]]) -> None:
    reader, now = ProgressReader(), 0.0
    for text, later in lines:
        now += later  # clocks go back, too
        reader.read(line(text, at=now))
        found = reader.of(0)
        if found is not None:
            assert found.done is None or 0 <= found.done <= 1
            assert found.left is None or found.left >= 0
            assert found.rate is None or found.rate > 0
            assert all(words(found))
