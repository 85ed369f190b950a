"""Which lines have metrics, and which only look as if: examples of what programs print, and properties."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.metrics.text import NOTHING, ParsedLine, parse, parse_number

PRINTED = {
    "loss=0.53 accuracy=0.80": ParsedLine((("loss", 0.53), ("accuracy", 0.8))),
    "loss = 0.53, val_loss = 1e-3": ParsedLine((("loss", 0.53), ("val_loss", 0.001))),
    "epoch=2 step=10 loss=.5": ParsedLine((("loss", 0.5),), step=10, epoch=2.0),
    "global_step=7 lr=5e-05": ParsedLine((("lr", 5e-05),), step=7),
    "step=7/100 loss=0.3": ParsedLine((("loss", 0.3),), step=7, steps=100),
    "INFO:root:loss=0.5": ParsedLine((("loss", 0.5),)),
    "2026-01-01 12:30:45,123 INFO train.py:12 loss=0.5": ParsedLine((("loss", 0.5),)),
    "[rank0]: train/loss=0.5 Acc@1=10.": ParsedLine((("train/loss", 0.5), ("Acc@1", 10.0))),
    "accuracy=98.5% done": ParsedLine((("accuracy", 98.5),)),
    "the loss=0.5.": ParsedLine((("loss", 0.5),)),
    "loss=tensor(0.53, device='cuda:0')": ParsedLine((("loss", 0.53),)),
    "Namespace(batch_size=64, lr=0.1, name='x')": ParsedLine((("batch_size", 64.0), ("lr", 0.1))),
    "epoch 1:": ParsedLine(epoch=1.0),
    "Epoch 2/5": ParsedLine(epoch=2.0),
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.532100": ParsedLine((("Loss", 0.5321),), 640, 1.0, 60000),
    "Epoch: [0][ 10/5005]\tTime  0.5": ParsedLine(step=10, epoch=0.0, steps=5005),
    "Epoch [1/5], Step [100/600], Loss: 0.2345": ParsedLine((("Loss", 0.2345),), 100, 1.0, 600),
    "Test set: Average loss: 0.0562, Accuracy: 9812/10000 (98%)": ParsedLine(
        (("loss", 0.0562), ("Accuracy", 0.9812))
    ),
    "{'loss': 0.53, 'learning_rate': 5e-05, 'epoch': 1.33}": ParsedLine(
        (("loss", 0.53), ("learning_rate", 5e-05)), epoch=1.33
    ),
    "469/938 [=====>.....] - 3s 5ms/step - loss: 0.5310 - mine: 0.8": ParsedLine(
        (("loss", 0.531), ("mine", 0.8)), step=469, steps=938
    ),
    "\x1b[1m938/938\x1b[0m \x1b[32m━━━━\x1b[0m \x1b[1m5s\x1b[0m 5ms/step - accuracy: 0.8": ParsedLine(
        (("accuracy", 0.8),), step=938, steps=938
    ),
    "Epoch 0: 41%|####    | 41/100 [00:10<00:20, 9.1it/s, loss=0.1]": ParsedLine(
        (("loss", 0.1),), 41, 0.0, 100
    ),
    "Epoch 0: 41%|####    | 41/100 [00:10<00:20, 9.1it/s, acc=0.5, loss=0": ParsedLine(
        (("acc", 0.5),), 41, 0.0, 100
    ),
    "Epoch:  33%|###       | 1/3 [00:10<00:20, 9.1it/s]": ParsedLine(step=1, steps=3),
    "step 5 of 20, loss: 0.1": ParsedLine((("loss", 0.1),), step=5, steps=20),
    "20/20 - 1s - 25ms/step - loss: 0.4120": ParsedLine((("loss", 0.412),), step=20, steps=20),
    "4/20 ━━━ 1s 124ms/step - loss: 6.7 - mae: 2.4\x08\x08\x08": ParsedLine(
        (("loss", 6.7), ("mae", 2.4)), step=4, steps=20
    ),
    "iteration 12 lr: 0.1 mine: 3": ParsedLine((("lr", 0.1), ("mine", 3.0)), step=12),
    '{"epoch": 0, "loss": "0.22", "global_step": "10", "timestamp": 1638422847.2}': ParsedLine(
        (("loss", 0.22),), step=10, epoch=0.0
    ),
    '{"train": {"loss": 1, "ok": true}, "note": "fine", "big": [1, 2]}': ParsedLine((("train.loss", 1.0),)),
}
NOT_METRICS = [
    "",
    "2026-01-01 12:30:45,123 INFO root: listening on port: 8080",
    "http://host:80/path?a=1&b=2#c=3",
    "x==1 y!=2 z>=3 w<=4 v:=5 u+=6",
    "train.py --lr=0.1 --batch-size=64",
    "host=10.0.0.1 date=2026-01-01 at=12:30 commit=12ab34 size=5MB list=1,000 part=5/8",
    "MASTER_PORT=29500 WORLD_SIZE=2 rank=0 pid: 12",
    "exit code: 1, files: 3, took: 12",
    "a=b c= d =",
    "data/year=2026/part-0.parquet",
    "5 epochs, in 3 steps, with iterators",
    '{"note": "fine", "ok": true}',
    "{broken: 1",
    "word:5",
]


@pytest.mark.parametrize("line", PRINTED)
def test_what_programs_print(line: str) -> None:
    assert parse(line) == PRINTED[line]


@pytest.mark.parametrize("line", NOT_METRICS)
def test_what_only_looks_like_a_metric(line: str) -> None:
    assert parse(line) is NOTHING or parse(line) == ParsedLine()


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity", "+1.5E+3", "-.5", "5.", "1e999"])
def test_numbers_of_every_form(text: str) -> None:
    ((name, value),) = parse(f"loss={text} end").pairs
    assert name == "loss"
    assert value == float(text) or math.isnan(float(text))


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,10}[a-z0-9]", fullmatch=True).filter(
    lambda name: not name.startswith(("step", "epoch", "iter", "global")) and bool(parse(f"{name}=1").pairs)
)
VALUES = st.floats(allow_nan=False) | st.integers(-(10**12), 10**12).map(float)
PAIRS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=5)


@given(PAIRS, st.sampled_from([" ", ", ", "; ", "\t", " | "]), st.integers(0, 10**9))
def test_what_is_printed_as_name_and_value_comes_back(
    pairs: dict[str, float], between: str, step: int
) -> None:
    text = between.join([f"step={step}", *(f"{name}={value!r}" for name, value in pairs.items())])
    assert parse(text) == ParsedLine(tuple(pairs.items()), step=step)


@given(PAIRS, st.integers(0, 10**9))
def test_what_is_printed_as_json_comes_back(pairs: dict[str, float], step: int) -> None:
    assert parse(json.dumps({"step": step, **pairs})) == ParsedLine(tuple(pairs.items()), step=step)


@given(PAIRS)
def test_what_is_printed_as_a_dict_of_python_comes_back(pairs: dict[str, float]) -> None:
    finite = {name: value for name, value in pairs.items() if math.isfinite(value)}
    assert parse(f"metrics: {finite!r}").pairs == tuple(finite.items())


PARTS = st.sampled_from(
    ["loss", "=", ":", " ", "1", ".", "e", "-", "nan", "/", "[", "]", "epoch", "step", "{", "}", '"', "'",
     "(", "%", "\x1b[1m", "|", "━", "tensor(", "é", "\x00", ",", "9" * 50]
)  # fmt: skip


@given(st.lists(PARTS | st.text(max_size=3), max_size=40).map("".join))
def test_any_line_gives_numbers_or_nothing(line: str) -> None:
    found = parse(line)
    assert all(name and isinstance(value, float) for name, value in found.pairs)
    assert found.step is None or found.step >= 0


@pytest.mark.parametrize(
    "piece", ["a", "a=", "loss: ", "step ", "epoch [", "1/", "{", '{"a":', "=1", " ", "9", "tensor(", "\x1b["]
)
def test_a_line_without_end_takes_no_time_of_its_own(piece: str) -> None:
    """A pattern that looks for a part again and again would take hours for these."""
    parse(piece * 1_000_000)


@given(st.floats())
def test_a_number_is_read_as_python_prints_it(value: float) -> None:
    read = parse_number(repr(value))
    assert read == value or (math.isnan(value) and read is not None and math.isnan(read))


def test_text_is_no_number() -> None:
    assert [parse_number(text) for text in ("", "1_000", " 1", "0x10", "1" * 200, "one")] == [None] * 6
