"""Values come back as they were, and what is no plain data is refused by name."""

import hashlib
import json
import math
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.conftest import need_python
from tests.properties import examples

from echelon.codecs import writing
from echelon.codecs.reading import read_value
from echelon.codecs.writing import PICKLE, SUMS, TENSORS, VALUE, NotData, replace_folder
from echelon.errors import CannotShip, StateTrouble, Unavailable


@pytest.fixture
def around(tmp_path):
    """Write a value, and read it again."""

    def around(value) -> Any:
        replace_folder(value, "train", tmp_path / "value")
        return read_value(tmp_path / "value", "rank 0")

    return around


_scalars = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False)
    | some.text()
    | some.binary()
)
_values = some.recursive(
    _scalars,
    lambda inner: (
        some.lists(inner)
        | some.lists(inner).map(tuple)
        | some.sets(_scalars)
        | some.frozensets(_scalars | some.frozensets(_scalars))
        | some.dictionaries(some.text(), inner)
        | some.dictionaries(some.integers() | some.tuples(some.text(), some.integers()), inner)
    ),
    max_leaves=20,
)


def same_types(left, right):
    """Whether values are equal and of the same types: 1 is not True, and 1.0 is neither."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=True)
        return len(left) == len(right) and all(
            same_types(a, b) and same_types(c, d) for (a, c), (b, d) in pairs
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same_types, left, right))
    if isinstance(left, set | frozenset):
        return left == right and {(type(each), each) for each in left} == {
            (type(each), each) for each in right
        }
    return left == right


@settings(deadline=None, max_examples=examples(60))
@given(_values)
def test_plain_values_come_back_as_they_were(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("values") / "value"
    replace_folder(value, "train", folder)
    assert same_types(read_value(folder, "rank 0"), value)


def test_numbers_that_json_has_not(around):
    found = around([math.inf, -math.inf, math.nan, 10**5000, -(2**64)])
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert found[3:] == [10**5000, -(2**64)]


def test_arrays_and_their_scalars(around):
    table = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    value: dict[str, Any] = {
        "weights": [np.arange(6.0).reshape(2, 3), np.zeros(0, "i2")],
        "loss": np.float32(0.5),
        "table": table,
    }
    found = around(value)
    assert np.array_equal(found["weights"][0], value["weights"][0])
    assert found["weights"][1].dtype == "i2"
    assert isinstance(found["loss"], np.float32)
    assert found["loss"] == 0.5
    assert found["table"].dtype.names == ("a", "b")


def test_tensors_of_every_type(around, tmp_path):
    torch = pytest.importorskip("torch")
    value = {str(name): torch.arange(3).to(getattr(torch, name)) for name in writing.DTYPES}
    value |= {
        "none": torch.zeros(0, 4),
        "one": torch.tensor(1.5),
        "turned": torch.arange(6.0).reshape(2, 3).T,
    }
    value |= {"graph": torch.ones(2, requires_grad=True) * 2, "parameter": torch.nn.Parameter(torch.ones(1))}
    found = around(value)
    for name, tensor in value.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].to(torch.complex128), tensor.detach().to(torch.complex128)), name
    header = (tmp_path / "value" / TENSORS).read_bytes()
    length = int.from_bytes(header[:8], "little")
    offsets = [each["data_offsets"] for each in json.loads(header[8 : 8 + length]).values()]
    assert [begin for begin, _ in offsets[1:]] == [end for _, end in offsets[:-1]]  # as the format requires


def test_a_state_dict_goes_into_a_model_again(around):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    found = around(model.state_dict())
    other = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    other.load_state_dict(found)
    assert torch.equal(other[0].weight, model[0].weight)


def test_tables(around):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"loss": [0.5, 0.25], "note": ["a", None]}, index=["first", "second"])
    found: Any = around((frame, frame["loss"], pandas.Series([1, 2]), pyarrow.table({"x": [1, 2]})))
    pandas.testing.assert_frame_equal(found[0], frame)
    pandas.testing.assert_series_equal(found[1], frame["loss"])
    assert found[2].name is None
    assert found[3].to_pydict() == {"x": [1, 2]}


class Point(NamedTuple):
    x: int
    y: int


class Thing:
    pass


@pytest.mark.parametrize(
    ("value", "place", "kind", "hint"),
    [
        ({"model": [1, Thing()]}, "value['model'][1]", "Thing", "return numbers"),
        (Point(1, 2), "value", "Point", "plain list, tuple or dict"),
        ({Thing(): 1}, "a key of value", "Thing", "texts or numbers"),
        ([{Thing()}], "an element of value[0]", "Thing", "return numbers"),
        (np.array([None]), "value", "numpy.ndarray", "object"),
        (OrderedDict(f=len), "value['f']", "builtin_function_or_method", "return numbers"),
    ],
)
def test_what_is_no_data_is_refused_by_its_name_and_type(tmp_path, value, place, kind, hint):
    with pytest.raises(NotData) as refused:
        replace_folder(value, "train", tmp_path / "value")
    assert refused.value.place == place
    assert refused.value.kind.endswith(kind)
    assert hint in refused.value.hint
    assert sorted(each.name for each in (tmp_path / "value").iterdir()) == [SUMS, VALUE, PICKLE]
    with pytest.raises(CannotShip, match="not plain data"):
        read_value(tmp_path / "value", "rank 0")


def test_a_module_is_refused_with_what_to_return():
    torch = pytest.importorskip("torch")
    with pytest.raises(NotData) as refused:
        writing.Writer(Path()).write({"model": torch.nn.Linear(1, 1)})
    assert "state_dict()" in refused.value.hint


def test_a_list_that_holds_itself_is_refused(tmp_path):
    value = []
    value.append(value)
    with pytest.raises(NotData, match="value"):
        replace_folder(value, "train", tmp_path / "value")


def test_nothing_is_unpickled(tmp_path):
    """An npy file with a pickle in it, whose digest is right, is not read."""
    folder = tmp_path / "value"
    replace_folder(np.zeros(2), "train", folder)
    np.save(folder / "1.npy", np.array([Thing()]), allow_pickle=True)
    _sum_again(folder)
    with pytest.raises(StateTrouble, match="cannot be read"):
        read_value(folder, "rank 0")
    (folder / "1.npy").write_bytes(pickle.dumps([1]))
    _sum_again(folder)
    with pytest.raises(StateTrouble, match="cannot be read"):
        read_value(folder, "rank 0")


class Opens:
    """Its pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


def test_a_pickle_is_read_only_with_its_own_seal(tmp_path):
    folder, trace = tmp_path / "value", tmp_path / "trace"
    with pytest.raises(NotData):
        replace_folder({"at": Opens(trace)}, "train", folder)
    pickled = (folder / PICKLE).read_bytes()
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(CannotShip, match=r"value\['at'\], a .*Opens, which is not plain data") as refused:
        read_value(folder, "rank 0")
    assert PICKLE in refused.value.hint
    with pytest.raises(StateTrouble, match="is not the one that the rank wrote"):
        read_value(folder, "rank 0", other)
    assert not trace.exists()
    found: Any = read_value(folder, "rank 0", hashlib.sha256(pickled).hexdigest())
    found["at"].close()
    assert trace.exists()


@pytest.mark.parametrize("name", [VALUE, "1.npy", TENSORS, SUMS])
def test_damage_is_noticed(tmp_path, name):
    torch = pytest.importorskip("torch")
    folder = tmp_path / "value"
    replace_folder([np.zeros(2), torch.ones(2)], "train", folder)
    content = bytearray((folder / name).read_bytes())
    content[-2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(StateTrouble, match="cannot be read"):
        read_value(folder, "rank 0")
    (folder / name).unlink()
    with pytest.raises(StateTrouble, match="cannot be read"):
        read_value(folder, "rank 0")


@pytest.mark.parametrize(
    "tree",
    [
        '{"array": "../1.npy"}',
        '{"unknown": 1}',
        '{"float": "x"}',
        '{"dict": 3}',
        '{"items": [[[], 1]]}',
        "[" * 5000,
    ],
)
def test_a_tree_that_others_have_written_is_not_trusted(tmp_path, tree):
    folder = tmp_path / "value"
    replace_folder(1, "train", folder)
    (folder / VALUE).write_text(f'{{"schema": 1, "name": "train", "value": {tree}}}')
    _sum_again(folder)
    with pytest.raises(StateTrouble, match="cannot be read"):
        read_value(folder, "rank 0")


def test_a_client_without_the_library_is_told(tmp_path, monkeypatch):
    replace_folder(np.zeros(2), "train", tmp_path / "value")
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(Unavailable, match="this Python has no numpy"):
        read_value(tmp_path / "value", "rank 0")


def test_a_later_value_replaces_an_earlier_one(tmp_path):
    folder = tmp_path / "value"
    replace_folder([np.zeros(2)], "train", folder)
    replace_folder(5, "train", folder)
    assert read_value(folder, "rank 0") == 5
    assert [each.name for each in tmp_path.iterdir()] == ["value"]


@pytest.mark.slow
@pytest.mark.parametrize("minor", ["3.8", f"{sys.version_info[0]}.{sys.version_info[1]}"])
def test_the_writer_needs_nothing_but_an_old_python(tmp_path, minor):
    python = sys.executable if minor != "3.8" else need_python("3.8")
    load = "import sys; sys.path.insert(0, sys.argv[1]); import writing"
    program = f"{load}; writing.keep_returned({{'a': (1, b'x')}}, 'f')"
    environment = {"ECHELON_OUTPUT": str(tmp_path), "ECHELON_RANK": "3"}
    folder = str(Path(writing.__file__).parent)
    subprocess.run([python, "-I", "-c", program, folder], env=environment, check=True)
    assert read_value(tmp_path / writing.rank_folder(3), "rank 3") == {"a": (1, b"x")}


def _sum_again(folder):
    (folder / SUMS).unlink()
    writing._write_sums(folder)
