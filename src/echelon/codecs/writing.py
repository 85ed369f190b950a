"""Write a value to a folder as plain data. This file is shipped to the ranks by itself, without echelon.

::

    value.json            the value as a tree; arrays and tables in it refer to the files beside it
    1.npy, 2.arrow        one array, one table
    tensors.safetensors   all tensors, each under its place in the value
    value.pkl             a pickle instead, of a value that is not plain data, if it can be pickled
    SHA256SUMS            the digests of all of them; written last

In the tree, numbers, texts, None, booleans and lists stand for themselves; everything else is an object with
one key that says what it is (`{"tuple": [...]}`, `{"array": "1.npy"}`). Libraries are never imported to
recognise a value: a value of a library means that it is imported.

A pickle may run code when it is read, and so may be read only where it was written: its digest is then also
in the folder that `_ECHELON_SEALS` names, to which no other user can write.
"""

from __future__ import annotations

import base64
import collections
import ctypes
import hashlib
import json
import math
import os
import pickle
import shutil
import struct
import sys
import uuid
from pathlib import Path
from typing import Any, Dict

SCHEMA = 1
VALUE, TENSORS, SUMS = "value.json", "tensors.safetensors", "SHA256SUMS"
PICKLE = "value.pkl"
SEALS = "_ECHELON_SEALS"
RETURNED = "returned"  # the folder among the results that holds what functions returned
DEEPEST = 100  # containers within each other
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}
"""PyTorch's names of types, and those of safetensors."""
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_KEYS = (str, int, float, bool, bytes, type(None))
_SMALL = 2**63  # whole numbers from here on are written in base 16, which has no limit of length


class NotData(Exception):
    """A value, or something in it, that is not plain data."""

    def __init__(self, place: str, value: object, hint: str = "") -> None:
        kind = type(value)
        self.place = place
        self.kind = f"{kind.__module__}.{kind.__qualname__}".replace("builtins.", "", 1)
        self.hint = hint or "return numbers, texts, arrays, tensors or tables, in lists, tuples and dicts"
        super().__init__(place)


def rank_folder(rank: object) -> str:
    """Where, among the results, the value that a rank returned is."""
    return f"{RETURNED}/rank-{rank}"


def seal_name(rank: object) -> str:
    """The file with the digest of the pickle that a rank returned."""
    return f"rank-{rank}.sha256"


def keep_returned(value: object, function: str) -> None:
    """Keep what a function returned among the run's results. A value that is not plain data is kept as a
    pickle, or refused, on standard error and in its place: what was trained is not lost for it.
    """
    output, rank = os.environ.get("ECHELON_OUTPUT"), os.environ.get("ECHELON_RANK")
    if output is None or rank is None:  # the script was started by hand
        return
    folder, seals = Path(output) / rank_folder(rank), os.environ.get(SEALS)
    try:
        replace_folder(value, function, folder)
    except NotData as refusal:
        what = f"{refusal.place}, a {refusal.kind}, which is not plain data"
        if not (folder / PICKLE).exists():
            sys.stderr.write(f"{function} returned {what} and is not kept ({refusal.hint})\n")
        elif seals is None:
            kept = f"a pickle of it is in {rank_folder(rank)}, which run.result() does not read"
            sys.stderr.write(f"{function} returned {what}: {kept} ({refusal.hint})\n")
        else:
            Path(seals).mkdir(mode=0o700, exist_ok=True)
            (Path(seals) / seal_name(rank)).write_text(digest_of(folder / PICKLE), encoding="ascii")


def replace_folder(value: object, name: str, folder: Path) -> None:
    """Write a value so that a folder is complete or as before; `name` is the value's name in messages. Raises
    NotData once that, and a pickle where there can be one, is written in the value's place.
    """
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    partial.mkdir(parents=True)
    try:
        refusal: Any = None
        content: Dict[str, Any]
        try:
            content = {"schema": SCHEMA, "name": name, "value": Writer(partial).write(value)}
        except NotData as error:
            refusal = error
            shutil.rmtree(partial)
            partial.mkdir()
            refused = {"place": error.place, "type": error.kind, "hint": error.hint}
            content = {"schema": SCHEMA, "name": name, "refused": refused}
            _write_pickle(value, partial / PICKLE)
        (partial / VALUE).write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
        _write_sums(partial)
        if folder.is_dir():  # of an earlier start of the same rank
            shutil.rmtree(folder)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if refusal is not None:
        raise refusal


def _write_pickle(value: object, path: Path) -> None:
    try:
        with path.open("wb") as file:
            pickle.dump(value, file, protocol=4)  # which every Python reads that ranks may have
    except Exception:  # noqa: BLE001 - a value may raise anything
        path.unlink()


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            piece = file.read(1 << 20)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)


def _write_sums(folder: Path) -> None:
    names = sorted(each.name for each in folder.iterdir())
    lines = [f"{digest_of(folder / name)}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


class Writer:
    """Writes the files that one value needs beside its tree."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self._tensors: Dict[str, Any] = {}

    def write(self, value: object) -> Any:
        """Write the files, and return the tree."""
        tree = self._tree(value, "value", 0)
        if self._tensors:
            _write_tensors(self._folder / TENSORS, self._tensors)
        return tree

    def _tree(self, value: Any, place: str, depth: int) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if -_SMALL <= value < _SMALL else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if depth > DEEPEST:
            raise NotData(place, value, "it is nested too deep, or holds itself")
        if kind in (list, tuple):
            inside = [self._tree(each, f"{place}[{at}]", depth + 1) for at, each in enumerate(value)]
            return inside if kind is list else {"tuple": inside}
        if kind in (set, frozenset):
            inside = [self._tree(each, f"an element of {place}", depth + 1) for each in value]
            return {kind.__name__: inside}
        if kind in _DICTS:
            return self._dict(value, place, depth)
        return self._of_a_library(value, place)

    def _dict(self, value: Any, place: str, depth: int) -> Any:
        for key in value:
            parts = key if type(key) is tuple else (key,)
            if any(type(part) not in _KEYS for part in parts):
                raise NotData(f"a key of {place}", key, "use texts or numbers as keys")
        tree = self._tree
        if all(type(key) is str for key in value):
            return {"dict": {key: tree(each, f"{place}[{key!r}]", depth + 1) for key, each in value.items()}}
        pairs = [
            [tree(key, place, depth + 1), tree(each, f"{place}[{key!r}]", depth + 1)]
            for key, each in value.items()
        ]
        return {"items": pairs}

    def _of_a_library(self, value: Any, place: str) -> Any:
        """An array, a tensor or a table."""
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
        if numpy is not None and isinstance(value, numpy.generic):
            return {"scalar": self._array(numpy, numpy.asarray(value), value, place)}
        if numpy is not None and type(value) in (numpy.ndarray, numpy.memmap):
            return {"array": self._array(numpy, value, value, place)}
        if torch is not None and isinstance(value, torch.Tensor):
            self._tensors[place] = _plain_tensor(torch, value, place)
            return {"tensor": place}
        if pandas is not None and type(value) is pandas.DataFrame:
            return {"frame": self._frame(value, value, place)}
        if pandas is not None and type(value) is pandas.Series:
            return {"series": self._frame(value.to_frame(), value, place), "named": value.name is not None}
        if pyarrow is not None and type(value) is pyarrow.Table:
            return {"table": self._table(pyarrow, value)}
        raise NotData(place, value, _hint(value, torch))

    def _next_file(self, ending: str) -> Path:
        self._files += 1
        return self._folder / f"{self._files}.{ending}"

    def _array(self, numpy: Any, array: Any, value: object, place: str) -> str:
        path = self._next_file("npy")
        dtype = array.dtype
        if dtype.hasobject or (dtype.kind == "V" and dtype.names is None):
            hint = f"convert it, such as array.astype(float); its dtype is {dtype}"
            raise NotData(place, value, hint)
        try:
            numpy.save(path, array, allow_pickle=False)
        except (ValueError, TypeError) as error:
            raise NotData(place, value, f"it cannot be written as npy: {error}") from None
        return path.name

    def _frame(self, frame: Any, value: object, place: str) -> str:
        try:
            import pyarrow  # type: ignore[import-untyped]  # noqa: ICN001 - as its module is called
        except ImportError:
            raise NotData(
                place, value, "install pyarrow beside pandas, or return its to_dict('list')"
            ) from None
        try:
            return self._table(pyarrow, pyarrow.Table.from_pandas(frame))
        except (pyarrow.ArrowException, ValueError, TypeError) as error:
            raise NotData(place, value, f"Arrow cannot hold it: {error}") from None

    def _table(self, pyarrow: Any, table: Any) -> str:
        path = self._next_file("arrow")
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return path.name


def _hint(value: object, torch: Any) -> str:
    """What to return instead of a value that is often returned."""
    if torch is not None and isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
        return "return its state_dict(), or save it below $ECHELON_OUTPUT"
    if hasattr(value, "__array__"):
        return "return numpy.asarray(...) of it"
    if hasattr(value, "__dataclass_fields__"):
        return "return dataclasses.asdict(...) of it"
    if isinstance(value, (tuple, list, dict, set, frozenset)):
        return "return a plain list, tuple or dict of it"
    return ""


def _plain_tensor(torch: Any, value: Any, place: str) -> Any:
    """A tensor that is rows of numbers in this process's reach, whatever it was made by."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise NotData(place, value, "return a plain tensor; for a DTensor, its full_tensor()")
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        raise NotData(place, value, "return a dense tensor with values")
    if str(value.dtype).replace("torch.", "", 1) not in DTYPES:
        raise NotData(place, value, f"safetensors has no {value.dtype}; convert it")
    return value.detach()


def _write_tensors(path: Path, tensors: Dict[str, Any]) -> None:
    """One safetensors file: its header's length, the header, the tensors' bytes, the widest types first, so
    that each is aligned.
    """
    order = sorted(tensors, key=lambda place: -tensors[place].element_size())
    header: Dict[str, Any] = {}
    position = 0
    for place in order:
        tensor = tensors[place]
        size = tensor.numel() * tensor.element_size()
        dtype = DTYPES[str(tensor.dtype).replace("torch.", "", 1)]
        offsets = [position, position + size]
        header[place] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for place in order:
            tensor = tensors[place].resolve_conj().resolve_neg().cpu().contiguous()
            size = tensor.numel() * tensor.element_size()
            if size:
                file.write((ctypes.c_char * size).from_address(tensor.data_ptr()))
