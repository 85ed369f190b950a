"""Parse the files of a value that `writing.py` has written. Like it, this file is shipped to ranks by itself.

Nothing in the files can run code: npy is read without pickles, Arrow without Python's own extension types."""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import math
import re
import struct
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

from echelon.codecs.writing import DEEPEST, DTYPES, SUMS, TENSORS, digest_of

_SUM = re.compile(r"([0-9a-f]{64})  ([\w.-]+)")
_FILE = re.compile(r"[0-9]{1,9}\.(?:npy|arrow)")
_ARROW_SINCE = 15  # older versions of pyarrow may unpickle an extension type
_LARGE = 1 << 25  # bytes
_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    OverflowError,
    MemoryError,
    RecursionError,
    struct.error,
    binascii.Error,
)
"""What damaged files raise, beside errors of the libraries that read them."""


class LibraryMissing(Exception):
    """A value needs a library that this Python lacks, or has in a version that is too old."""

    def __init__(self, library: str, what: str, version: str = "") -> None:
        self.library, self.what, self.version = library, what, version
        super().__init__("%s needs %s" % (what, library))


class Changed(ValueError):
    """A file is not as it was written."""


def read_sums(folder: Path) -> Dict[str, str]:
    """The digests that a folder's files should have."""
    return {name: digest for digest, name in _SUM.findall((folder / SUMS).read_text("utf-8"))}


def checked(folder: Path, name: str, sums: Mapping[str, str]) -> Path:
    """A file whose content is as it was written; raises Changed if it is not."""
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise Changed("%s is missing" % name)
    if sums.get(name) != digest_of(path):
        raise Changed("%s has changed since it was written" % name)
    return path


class Reader:
    """Reads a tree and the files that it refers to. Without `sums` the files are not checked. With `mapped`
    large arrays stay in their files: enough to compare them.
    """

    def __init__(self, folder: Path, sums: Optional[Mapping[str, str]], mapped: bool = False) -> None:
        self._folder, self._sums, self._mapped = folder, sums, mapped
        self._tensors: Optional[Dict[str, Any]] = None

    def value(self, tree: Any, depth: int = 0) -> Any:
        """The value of a tree."""
        if depth > 2 * DEEPEST:
            raise ValueError("it is nested too deep")
        if isinstance(tree, list):
            return [self.value(each, depth + 1) for each in tree]
        if not isinstance(tree, dict):
            return tree
        what, inside = next(iter(tree.items()))
        if what == "tuple":
            return tuple(self.value(each, depth + 1) for each in inside)
        if what in ("set", "frozenset"):
            kind = set if what == "set" else frozenset
            return kind(self.value(each, depth + 1) for each in inside)
        if what == "dict":
            return {key: self.value(each, depth + 1) for key, each in inside.items()}
        if what == "items":
            return {self.value(key, depth + 1): self.value(each, depth + 1) for key, each in inside}
        if what == "series":
            series = self._frame(inside).iloc[:, 0]
            return series if tree["named"] else series.rename(None)
        readers: Dict[str, Callable[[Any], Any]] = {
            "int": lambda text: int(text, 16),
            "float": _NOT_FINITE.__getitem__,
            "bytes": lambda text: base64.b64decode(text, validate=True),
            "array": self._array,
            "scalar": lambda name: self._array(name)[()],
            "tensor": self._tensor,
            "table": self._table,
            "frame": self._frame,
        }
        return readers[what](inside)

    def _file(self, name: object) -> Path:
        if not isinstance(name, str) or not _FILE.fullmatch(name):
            raise ValueError("%r is not a file of a value" % (name,))
        return self._checked(name)

    def _checked(self, name: str) -> Path:
        return self._folder / name if self._sums is None else checked(self._folder, name, self._sums)

    def _array(self, name: object) -> Any:
        path = self._file(name)
        numpy = _library("numpy", "an array")
        if self._mapped and path.stat().st_size > _LARGE:
            return numpy.lib.format.open_memmap(str(path), mode="r")
        with path.open("rb") as file:
            return numpy.lib.format.read_array(file, allow_pickle=False)

    def _table(self, name: object) -> Any:
        path = self._file(name)
        pyarrow = _library("pyarrow", "a table")
        if int(pyarrow.__version__.partition(".")[0]) < _ARROW_SINCE:
            raise LibraryMissing("pyarrow", "a table", pyarrow.__version__)
        with pyarrow.OSFile(str(path), "rb") as file:
            return pyarrow.ipc.open_file(file).read_all()

    def _frame(self, name: object) -> Any:
        _library("pandas", "a table")
        return self._table(name).to_pandas()

    def _tensor(self, place: str) -> Any:
        if self._tensors is None:
            self._tensors = _read_tensors(self._checked(TENSORS), _library("torch", "a tensor"))
        return self._tensors[place]


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise LibraryMissing(name, what) from None


def _read_tensors(path: Path, torch: Any) -> Dict[str, Any]:
    """All tensors of a safetensors file, each with memory of its own."""
    names = {short: name for name, short in DTYPES.items()}
    found = {}
    with path.open("rb") as file:
        size = path.stat().st_size
        (length,) = struct.unpack("<Q", file.read(8))
        if length > size:
            raise ValueError("its header is longer than the file")
        header, data = json.loads(file.read(length)), 8 + length
        for place, about in header.items():
            dtype, shape = getattr(torch, names[about["dtype"]]), [int(each) for each in about["shape"]]
            begin, end = about["data_offsets"]
            count = math.prod(shape)
            if min(shape, default=0) < 0 or not 0 <= begin <= end <= size - data:
                raise ValueError("%s is not inside the file" % place)
            if end - begin != count * dtype.itemsize:
                raise ValueError("%s has not the size of its shape" % place)
            file.seek(data + begin)
            raw = bytearray(file.read(end - begin))
            flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            found[place] = flat.reshape(shape)
    return found
