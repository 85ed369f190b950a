"""The trials that a user's words mean."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.errors import InvalidJob
from echelon.model.job import Job, Role
from echelon.model.resources import Resources
from echelon.sweeps.spaces import Interval, Trial, array, filled, read_space, trials, without_place

NAMES = st.sampled_from(["lr", "bs", "layers", "opt", "x_1", "Width"])
VALUES = st.lists(
    st.text("abcdefgh0123456789.-+", min_size=1, max_size=6).filter(lambda text: ".." not in text),
    min_size=1,
    max_size=4,
    unique=True,
)


def no_file(path: str) -> str:
    raise AssertionError(path)


def values(*words: str, **more: int) -> list[dict[str, str]]:
    return [dict(trial.values) for trial in trials(read_space(words, no_file), **more)]  # type: ignore[arg-type]


def one(word: str) -> list[str]:
    return [next(iter(row.values())) for row in values(word)]


@settings(max_examples=examples(200))
@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
def test_every_combination_is_a_trial_once(space: dict[str, list[str]]) -> None:
    made = trials(read_space([f"{name}={','.join(each)}" for name, each in space.items()], no_file))
    expected = [dict(zip(space, row, strict=True)) for row in itertools.product(*space.values())]
    assert [dict(trial.values) for trial in made] == expected
    assert [trial.name for trial in made] == [str(number) for number in range(1, len(expected) + 1)]


@settings(max_examples=examples(200))
@given(st.floats(1e-9, 1e3), st.floats(1.01, 1e9), st.integers(2, 30))
def test_values_of_a_range_lie_evenly_between_its_ends(low: float, times: float, count: int) -> None:
    low, high = float(f"{low:.3g}"), float(f"{low * times:.3g}")
    if not low < high:
        return
    found = [float(text) for text in one(f"x={low!r}..{high!r}:{count}")]
    assert (found[0], found[-1]) == (low, high)
    assert found == sorted(found)
    if (high - low) / low > 0.01 and not (low.is_integer() and high.is_integer()):
        assert len(found) == count
        places = [math.log(each) for each in found] if high / low >= 10 else found
        gaps = [after - before for before, after in itertools.pairwise(places)]
        assert max(gaps) - min(gaps) < 0.02 * (places[-1] - places[0])


@settings(max_examples=examples(100))
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_what_is_drawn_is_the_same_for_the_same_seed_and_inside(seed: int, count: int) -> None:
    words = ["lr=1e-5..1e-1", "dropout=0..1", "layers=2..8", "opt=adam,sgd"]
    drawn = values(*words, count=count, seed=seed)
    assert drawn == values(*words, count=count, seed=seed)
    assert len(drawn) == count
    for row in drawn:
        assert 1e-5 <= float(row["lr"]) <= 1e-1
        assert 0 <= float(row["dropout"]) <= 1
        assert 2 <= int(row["layers"]) <= 8
        assert row["opt"] in ("adam", "sgd")


def test_half_of_what_is_drawn_of_decades_is_below_their_middle() -> None:
    drawn = [float(row["lr"]) for row in values("lr=1e-5..1e-1", count=400)]
    assert 150 < sum(each < 1e-3 for each in drawn) < 250


def test_no_trial_is_drawn_twice_and_no_more_than_there_are() -> None:
    assert sorted(row["a"] for row in values("a=1,2,3", count=10)) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("layers=2..5", ["2", "3", "4", "5"]),
        ("layers=-1..1", ["-1", "0", "1"]),
        ("bs=16..256:5", ["16", "32", "64", "128", "256"]),
        ("lr=1e-5..1e-1:5", ["1e-5", "0.0001", "0.001", "0.01", "1e-1"]),
        ("p=0..1:3", ["0", "0.5", "1"]),
        ("p=0.2..0.4:3", ["0.2", "0.3", "0.4"]),
        ("lr=1e-4", ["1e-4"]),
        ('names="a,b",c', ["a,b", "c"]),
        ("path=../data,/tmp/x", ["../data", "/tmp/x"]),
        ("flag==,==", ["=", "=="]),
    ],
)
def test_one_word(word: str, found: list[str]) -> None:
    assert one(word) == found


def test_a_range_without_a_number_is_an_interval() -> None:
    assert read_space(["lr=1e-5..1e-1", "p=0..1", "w=0.1..0.9"], no_file) == (
        Interval(name="lr", low=1e-5, high=0.1, log=True),
        Interval(name="p", low=0.0, high=1.0),
        Interval(name="w", low=0.1, high=0.9),
    )


def test_rows_of_a_file_belong_together() -> None:
    text = 'lr, bs\n1e-3,32\n\n"1,5",64\n'
    found = trials(read_space(["@trials.csv", "opt=adam,sgd"], {"trials.csv": text}.__getitem__))
    assert [dict(trial.values) for trial in found] == [
        {"lr": "1e-3", "bs": "32", "opt": "adam"},
        {"lr": "1e-3", "bs": "32", "opt": "sgd"},
        {"lr": "1,5", "bs": "64", "opt": "adam"},
        {"lr": "1,5", "bs": "64", "opt": "sgd"},
    ]


def test_an_array_and_seeds() -> None:
    assert [trial.values["index"] for trial in trials([array("0..1")])] == ["0", "1"]
    assert [trial.values["index"] for trial in trials([array("3,7")])] == ["3", "7"]
    assert trials(read_space(["a=x,y"], no_file), repeats=2) == tuple(
        Trial(name=str(number), values={"a": a, "seed": seed})
        for number, (a, seed) in enumerate(itertools.product("xy", "01"), 1)
    )
    assert [trial.values for trial in trials([], repeats=2)] == [{"seed": "0"}, {"seed": "1"}]
    drawn = trials(read_space(["lr=0..1"], no_file), count=3, repeats=2)
    assert len({trial.values["lr"] for trial in drawn}) == 3  # each value of them is repeated
    assert len(drawn) == 6


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["train.py"], "says no values", "what is to run comes after --"),
        (["lr="], "says no values", "NAME=VALUE"),
        (["lr=1,,2"], "has an empty value", "lr=1e-4"),
        (["lr=1,1"], "is there twice", "--seeds"),
        (["lr=1..x"], "is not a range", "two numbers"),
        (["lr=x..1"], "is not a range", "two numbers"),
        (["lr=5..2"], "is not a range", "lower end comes first"),
        (["lr=2..2"], "is not a range", "lower end comes first"),
        (["lr=1..9:1"], "has not two values", "1..9:5"),
        (["lr=1e-5..1e-1"], "has no end of values", "--trials 20"),
        (["weight-decay=1,2"], "is not a parameter's name", "weight_decay"),
        (["=1,2"], "is not a parameter's name", "lr="),
        (["output=1"], "is filled in by echelon", "my_output"),
        (["lr=1", "lr=2"], "is there twice", "each parameter once"),
        (["lr=1", "LR=2"], "is there twice", "each parameter once"),
        (["a=1..200", "b=1..200"], "are too many trials", "--trials N"),
        (["a=1..2000000000"], "are too many trials", "--trials N"),
        ([], "has no parameter", "--array"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], problem: str, hint: str) -> None:
    with pytest.raises(InvalidJob, match=problem) as caught:
        values(*words)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"), [("lr\n", "has no trials"), ("", "has no trials"), ("a,b\n1\n", "1 values in row 1")]
)
def test_a_file_that_is_no_table_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidJob, match=problem):
        read_space(["@t.csv"], lambda _: text)


@pytest.mark.parametrize("text", ["", "x", "1..", "-1..3", "5..2", "1,,2"])
def test_an_array_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob):
        array(text)


BRACES = st.text('{}lrbs"x', max_size=8)


def test_values_are_in_arguments_variables_and_roles() -> None:
    job = Job(
        name="fm",
        script="train.py",
        args=("--lr", "{lr}", "--out={output}/{lr}-{bs}", '{"lr": {other}}'),
        env={"RATE": "{lr}"},
        roles=(Role(name="ps", workers=1, resources=Resources(), command=("ps", "{bs}"), args=("{lr}",)),),
    )
    made = filled(job, {"lr": "1e-3", "bs": "{lr}"})
    assert made.args == ("--lr", "1e-3", "--out={output}/1e-3-{lr}", '{"lr": {other}}')
    assert made.env == {"RATE": "1e-3", "ECHELON_PARAM_LR": "1e-3", "ECHELON_PARAM_BS": "{lr}"}
    assert (made.roles[0].command, made.roles[0].args) == (("ps", "{lr}"), ("1e-3",))
    assert without_place(job, ["lr", "bs", "other", "seed"]) == ["seed"]


@given(BRACES)
def test_other_braces_are_the_users(text: str) -> None:
    job = Job(name="fm", command=(text,))
    assert filled(job, {"lr": "1"}).command == (text.replace("{lr}", "1"),)
