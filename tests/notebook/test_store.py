"""Variables between steps: each comes back as it was, or the step that makes it fails and names it."""

from __future__ import annotations

import collections
import decimal
import json
import math
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from echelon.notebook.beside.store import CannotKeep, Damaged, Store, groups, read_secret


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


def store(path: Path, secret: bytes = b"s" * 32, run: str = "r-1") -> Store:
    return Store(path, run, secret, {}, ())


def there_and_back(path: Path, **values: Any) -> dict[str, Any]:
    store(path).publish("a", values, {})
    names = json.loads((path / "a" / "published.json").read_text())["names"]
    fresh = store(path)
    return {name: fresh.load("a", names[name]["entry"], name) for name in values}


def codec(path: Path, entry: str) -> str:
    return store(path).codec("a", entry)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "plain"),
        (-(2**80), "plain"),
        (math.inf, "plain"),
        ("ä\n", "plain"),
        (None, "plain"),
        (b"\0", "plain"),
        ([1, (2, {"a": [None]})], "plain"),
        ({1: "a", (1, "b"): 2.5}, "plain"),
        ({"b": 1, "a": 2}, "plain"),
        (collections.OrderedDict(a=1), "pickle"),
        (collections.Counter("aab"), "pickle"),
        ({1, 2}, "plain"),
        (decimal.Decimal("1.5"), "pickle"),
        (range(3), "pickle"),
        (Point(3), "pickle"),
    ],
)
def test_values_come_back_as_they_were(tmp_path: Path, value: Any, expected: str) -> None:
    found = there_and_back(tmp_path, x=value)["x"]
    assert found == value
    assert type(found) is type(value)
    assert list(found) == list(value) if isinstance(value, dict) else True
    assert codec(tmp_path, "x") == expected


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.arange(6.0).reshape(2, 3), "plain"),
        (np.array([1.0, np.nan]), "plain"),
        (np.zeros(0, dtype="int8"), "plain"),
        (np.array(["a", "bc"]), "plain"),
        (np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), "plain"),
        (np.array([1, "a", None], dtype=object), "pickle"),
        (np.float32(1.5), "plain"),
    ],
)
def test_arrays(tmp_path: Path, array: Any, expected: str) -> None:
    found = there_and_back(tmp_path, x=array)["x"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    assert codec(tmp_path, "x") == expected


def test_random_generators_go_on_where_they_were(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rng.random(5)
    found = there_and_back(tmp_path, rng=rng)["rng"]
    assert found.random() == rng.random()


def test_tables(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    plain = pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[3, 4])
    odd = pd.DataFrame({"a": [Point(1), 2]})  # Arrow cannot hold it
    found = there_and_back(tmp_path, plain=plain, odd=odd, column=plain["a"].copy())
    pd.testing.assert_frame_equal(found["plain"], plain)
    pd.testing.assert_series_equal(found["column"], plain["a"])
    assert found["odd"]["a"].tolist() == [Point(1), 2]
    assert (codec(tmp_path, "plain"), codec(tmp_path, "odd")) == ("plain", "pickle")


def test_a_table_keeps_the_frequency_of_its_dates(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    daily = pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2026-01-01", periods=2, freq="D"))
    loose = daily.set_axis(pd.DatetimeIndex(list(daily.index)))
    found = there_and_back(tmp_path, daily=daily, loose=loose)
    assert (found["daily"].index.freq, found["loose"].index.freq) == (daily.index.freq, None)
    assert codec(tmp_path, "loose") == "plain"


@pytest.mark.slow
def test_a_torch_model_and_its_optimizer_still_share_parameters(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = there_and_back(tmp_path, model=model, optimizer=optimizer, state=torch.ones(2))
    assert found["optimizer"].param_groups[0]["params"][0] is next(found["model"].parameters())
    assert torch.equal(found["model"].weight, model.weight)
    assert torch.equal(found["state"], torch.ones(2))


def test_what_is_shared_stays_shared(tmp_path: Path) -> None:
    inner = [1]
    found = there_and_back(tmp_path, a=inner, b={"in": inner}, c=[inner, inner], d=[1], e=())
    assert found["b"]["in"] is found["a"]
    assert found["c"][0] is found["c"][1] is found["a"]
    assert found["d"] is not found["a"]
    assert groups({"a": inner, "b": [inner], "d": [1], "e": (), "f": ()}) == [["a", "b"], ["d"], ["e"], ["f"]]
    twice = there_and_back(tmp_path / "two", x=[inner, inner])["x"]
    assert twice[0] is twice[1]


@pytest.mark.parametrize(
    ("value", "kind"),
    [((i for i in [1]), "generator"), (threading.Lock(), "_thread.lock"), ([1, (i for i in [1])], "list")],
)
def test_what_cannot_be_kept_is_named_where_it_is_made(tmp_path: Path, value: Any, kind: str) -> None:
    with pytest.raises(CannotKeep) as refused:
        store(tmp_path).publish("a", {"fine": 1, "bad": value}, {})
    assert refused.value.name == "bad"
    assert str(refused.value).startswith(f"bad, a {kind}, cannot be handed on")
    assert not list(tmp_path.iterdir())  # nothing is half there


class Poisoned:
    def __reduce__(self) -> Any:
        return os.mkdir, ("poisoned",)


def test_a_value_that_comes_back_as_something_else_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotKeep, match="it comes back as a NoneType"):
        store(tmp_path).publish("a", {"x": Poisoned()}, {})


def test_a_pickle_of_anybody_else_is_never_read(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    store(tmp_path / "v").publish("a", {"x": Point(1)}, {})
    entry = tmp_path / "v" / "a" / "x"
    poison = pickle.dumps({"x": Poisoned()})
    before = (entry / "value.pickle").read_bytes()
    (entry / "value.pickle").write_bytes(poison)
    with pytest.raises(Damaged, match="has changed since it was written"):
        store(tmp_path / "v").load("a", "x", "x")
    import hashlib

    meta = json.loads((entry / "meta.json").read_text())
    meta["files"]["value.pickle"] = hashlib.sha256(poison).hexdigest()  # a digest alone is no proof
    (entry / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(Damaged, match="was not written by this pipeline run"):
        store(tmp_path / "v").load("a", "x", "x")
    assert not (tmp_path / "poisoned").exists()
    (entry / "value.pickle").write_bytes(before)


def test_variables_of_another_run_or_step_are_not_taken(tmp_path: Path) -> None:
    store(tmp_path).publish("a", {"x": Point(1)}, {})
    with pytest.raises(Damaged):
        store(tmp_path, secret=b"t" * 32).load("a", "x", "x")
    with pytest.raises(Damaged):
        store(tmp_path, run="r-2").load("a", "x", "x")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(Damaged):
        store(tmp_path).load("b", "x", "x")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    store(tmp_path).publish("a", {"x": np.zeros(3)}, {})
    (tmp_path / "a" / "x" / "1.npy").unlink()
    with pytest.raises(Damaged, match=r"x of step a: 1\.npy is missing"):
        store(tmp_path).load("a", "x", "x")


@pytest.mark.parametrize(
    "noise", [b"", b"\xb4\x00", b"[]", b"[" * 100_000, b'{"seal": "\xc3\xa4"}', b"null"], ids=range(6)
)
def test_noise_where_a_variable_is_described_is_damage(tmp_path: Path, noise: bytes) -> None:
    store(tmp_path).publish("a", {"x": 3}, {})
    (tmp_path / "a" / "x" / "meta.json").write_bytes(noise)
    with pytest.raises(Damaged, match="x of step a"):
        store(tmp_path).load("a", "x", "x")


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    path.chmod(0o640)
    with pytest.raises(Damaged, match="is not this user's alone"):
        read_secret(path)
    path.chmod(0o600)
    assert read_secret(path) == b"x"


def test_publishing_again_replaces_all(tmp_path: Path) -> None:
    store(tmp_path).publish("a", {"x": 1, "y": 2}, {})
    store(tmp_path).publish("a", {"x": 3}, {"metrics": {"m": 1}})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a"]
    assert sorted(each.name for each in (tmp_path / "a").iterdir()) == ["published.json", "x"]
    assert store(tmp_path).load("a", "x", "x") == 3
