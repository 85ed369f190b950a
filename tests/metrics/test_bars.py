"""What a line says of the progress: as programs have printed it, and as none would."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tqdm import tqdm

from echelon.metrics.bars import ProgressLine, see
from echelon.metrics.text import ParsedLine

# Recorded: what Keras 3.15, tf_keras 2.21 and tqdm 4.70 wrote.
KERAS = (
    "\r\x1b[1m 4/20\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 124ms/step"
    " - loss: 6.7231 - mae: 2.4410" + 68 * "\x08"
)
KERAS_LAST = (
    "\x1b[1m20/20\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m9s\x1b[0m 272ms/step"
    " - loss: 4.0581 - mae: 1.8184"
)
PRINTED = {
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.53": ProgressLine(640, 60000, 1.0, pairs=(("Loss", 0.53),)),
    "Epoch 3/10": ProgressLine(epoch=3.0, epochs=10),
    "Epoch [1/5], Step [100/600], Loss: 0.2": ProgressLine(100, 600, 1.0, 5, pairs=(("Loss", 0.2),)),
    "Epoch: [0][ 10/5005]": ProgressLine(10, 5005, 0.0),
    "epoch 2 of 8": ProgressLine(epoch=2.0, epochs=8),
    "step 100/1000": ProgressLine(100, 1000),
    "Step: 400 of 1000": ProgressLine(400, 1000),
    " iteration        7/     100 | lm loss: 1.2E+00 |": ProgressLine(7, 100, pairs=(("loss", 1.2),)),
    "step 5/10 eta: 0:10:20": ProgressLine(5, 10, left=620.0),
    KERAS: ProgressLine(4, 20, rate=1 / 0.124, left=1.0, pairs=(("loss", 6.7231), ("mae", 2.441))),
    KERAS_LAST: ProgressLine(20, 20, rate=1 / 0.272, pairs=(("loss", 4.0581), ("mae", 1.8184))),
    "\x1b[1m 1/20\x1b[0m \x1b[32m━\x1b[0m\x1b[37m━━━\x1b[0m \x1b[1m1:04\x1b[0m 3s/step": ProgressLine(
        1, 20, rate=1 / 3, left=64.0
    ),
    "    120/Unknown \x1b[1m3s\x1b[0m 25us/step - loss: 0.5": ProgressLine(
        120, rate=1 / 0.000025, pairs=(("loss", 0.5),)
    ),
    "20/20 - 1s - 25ms/step - loss: 0.4120": ProgressLine(20, 20, rate=1 / 0.025, pairs=(("loss", 0.412),)),
    "\r 2/20 [==>...........................] - ETA: 1s - loss: 2.6300": ProgressLine(
        2, 20, left=1.0, pairs=(("loss", 2.63),)
    ),
    "20/20 [==============================] - 6s 128ms/step - loss: 1.5855": ProgressLine(
        20, 20, rate=1 / 0.128, pairs=(("loss", 1.5855),)
    ),
    "Epoch 3/10:  20%|██        | 1/5 [00:00<00:01,  3.31it/s, loss=0.5]": ProgressLine(
        1, 5, 3.0, 10, rate=3.31, left=1.0, pairs=(("loss", 0.5),)
    ),
    "Epoch 0:  45%|####5     | 422/938 [00:05<01:06, 1.50s/it]": ProgressLine(
        422, 938, 0.0, rate=1 / 1.5, left=66.0
    ),
    "Epoch:  67%|######6   | 2/3 [00:10<00:05,  5.00s/it]": ProgressLine(
        epoch=3.0, epochs=3, part=0.0, left=5.0
    ),
    "epochs: 100%|##########| 3/3 [00:10<00:00,  5.00s/it]": ProgressLine(
        epoch=3.0, epochs=3, part=1.0, left=0.0
    ),
    # Several bars, as the agent puts them into one line.
    "epochs:  33%| 1/3 [00:00<00:01,  3.00it/s]  steps:  50%| 10/20 [00:00<00:00, 41.00it/s]": ProgressLine(
        10, 20, 2.0, 3, rate=41.0
    ),
    "folds:  20%| 1/5 [00:09<00:36,  9.00s/it]   50%| 10/20 [00:00<00:00, 41.00it/s]": ProgressLine(
        1, 5, part=0.5, rate=1 / 9, left=36.0
    ),
    "  0%|          | 0/5 [00:00<?, ?it/s]": ProgressLine(0, 5),
    "  2%|▏         | 1.20k/60.0k [00:00<02:06, 465it/s]": ProgressLine(1200, 60000, rate=465.0, left=126.0),
    "  6%|6         | 6/100 [00:00<00:01, 68.66batch/s]": ProgressLine(6, 100, rate=68.66, left=1.0),
    "2it [00:00,  9.84it/s]": ProgressLine(2, rate=9.84),
    # rich, as Lightning shows it and by itself
    "Epoch 0/9  ━━━━━━━╸━━━ 422/938 0:00:05 • 0:00:06 77.50it/s train_loss: 0.12": ProgressLine(
        422, 938, 0.0, 9, rate=77.5, left=6.0, pairs=(("train_loss", 0.12),)
    ),
    "Train \x1b[91m━━━━\x1b[0m\x1b[90m╺━━━\x1b[0m \x1b[35m 45%\x1b[0m \x1b[36m0:00:02\x1b[0m": ProgressLine(
        part=0.45, left=2.0
    ),
    "{'loss': 0.53, 'epoch': 1.33}": ProgressLine(epoch=1.33, beside=True, pairs=(("loss", 0.53),)),
}
NO_PROGRESS = [
    "",
    "Downloading:  45%|####      | 45.0M/100M [00:10<00:12, 4.50MB/s]",
    "data/2026/01/part-3/7 is there",
    "tests: 3/7 passed [ok]",
    "5 epochs, in 3 steps",
    "┏━━━━━━━━━━━━┳━━━━━━━━━━┓",
    "2026-01-01 12:30:45 listening on 10.0.0.1/24",
]


@pytest.mark.parametrize("line", PRINTED)
def test_what_programs_print(line: str) -> None:
    seen = see(line)
    assert seen._replace(rate=None) == PRINTED[line]._replace(rate=None)
    assert seen.rate == pytest.approx(PRINTED[line].rate)


@pytest.mark.parametrize("line", NO_PROGRESS)
def test_what_only_looks_like_progress(line: str) -> None:
    seen = see(line)
    assert (seen.step, seen.steps, seen.epoch, seen.part, seen.rate) == (None,) * 5


def test_a_users_pattern_goes_first() -> None:
    found = ParsedLine((("acc", 0.5),), step=3, steps=9)
    assert see("step 1/2 at 3 of 9", found)[:2] == (3, 9)
    assert see("step 1/2", ParsedLine((("acc", 0.5),))) == ProgressLine(1, 2, pairs=(("acc", 0.5),))


@given(
    total=st.integers(1, 10**6),
    done=st.floats(0, 1),
    elapsed=st.floats(0.1, 10**5),
    ascii_=st.booleans(),
    unit=st.sampled_from(["it", "batch", "samples", "steps"]),
    prefix=st.sampled_from(["", "train", "Epoch 3/10", "a 7% share of | "]),
)
@example(  # ten thousand hours are left
    total=16384, done=6.2e-05, elapsed=2198.0, ascii_=False, unit="it", prefix=""
)
def test_any_bar_of_tqdm(
    total: int, done: float, elapsed: float, ascii_: bool, unit: str, prefix: str
) -> None:
    count = int(total * done)
    text = tqdm.format_meter(
        n=count, total=total, elapsed=elapsed, ascii=ascii_, unit=unit, prefix=prefix, ncols=100
    )
    seen = see(text)
    assert (seen.step, seen.steps) == (count, total)
    assert (seen.epoch, seen.epochs) == ((3.0, 10) if prefix.startswith("Epoch") else (None, None))
    if count:
        assert seen.rate == pytest.approx(count / elapsed, rel=0.6 if count / elapsed < 0.1 else 0.1)


def test_a_bar_of_tqdm_that_was_really_painted() -> None:
    written = io.StringIO()
    for _ in tqdm(range(7), desc="train", file=written, mininterval=0, ncols=80):
        pass
    assert see(written.getvalue().rstrip("\n"))[:2] == (7, 7)


PARTS = st.sampled_from(
    ["epoch", "Epoch ", "step ", "1", "20", "/", "%|", "|", "[", "]", "<", ":", "━", " ", "it/s", "s/it", "?",
     ", ", "ETA: ", "•", "\r", "\x1b[1m", "\x08", "Unknown", "ms/step", "- ", "1.5k", "9" * 30, "{", "of "]
)  # fmt: skip


@given(st.lists(PARTS | st.text(max_size=3), max_size=40).map("".join))
def test_any_line_gives_counts_or_nothing(line: str) -> None:
    seen = see(line)
    assert seen.step is None or seen.step >= 0
    assert seen.part is None or seen.part >= 0
    assert seen.rate is None or seen.rate > 0
    assert seen.left is None or seen.left >= 0


@pytest.mark.parametrize(
    "piece", ["5%|", "1/2 [", "━ ", "epoch ", "\x1b[1", "9", "ETA ", " ", "1it [0:00", "\r"]
)
def test_a_line_without_end_takes_no_time_of_its_own(piece: str) -> None:
    see(piece * 1_000_000)
