"""Whether a value came back from its files as it was, and what two values share. Libraries are never imported
to recognise a value.

Arrays and tensors share memory: a view and its array, `torch.from_numpy`, a model's `state_dict()`. They are
written as parts of one block, so that they still share it in the next step; a view that comes alone is
written alone. And what pickle leaves out of them is kept: gradients, the read-only flag."""

from __future__ import annotations

import enum
import gc
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

_DENSE = "torch.strided"
_ALIGNED = 16  # bytes
_ATOMS = (int, float, complex, str, bytes, type(None), type, ModuleType, BuiltinFunctionType, CodeType, range)
_FROZEN = (tuple, frozenset)


def block_of(value: Any) -> Optional[Tuple[str, int]]:
    """What names the memory that an array or a tensor is in; None for anything else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        if value.dtype.hasobject or not value.size:
            return None
        return ("memory", _root(numpy, value).__array_interface__["data"][0])
    if torch is not None and isinstance(value, torch.Tensor):
        try:
            if str(value.layout) != _DENSE or not value.numel():
                return None
            return ("memory", value.untyped_storage().data_ptr())
        except (RuntimeError, NotImplementedError):  # it has no memory
            return None
    return None


def objects_of(value: Any) -> List[Any]:
    """What an array of objects holds; nothing for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or value.dtype != object:
        return []
    found: List[Any] = value.ravel().tolist()
    return found


def gradient_of(value: Any) -> Any:
    """The gradient that a tensor holds; None if it holds none, and for anything else."""
    torch = sys.modules.get("torch")
    return value.grad if torch is not None and isinstance(value, torch.Tensor) and value.is_leaf else None


def _root(numpy: Any, array: Any) -> Any:
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    return array


class Blocks:
    """The memory that more than one of some arrays and tensors is in."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        found: Dict[Any, List[Any]] = {}
        for value in values:
            block = block_of(value)
            if block is not None:
                found.setdefault(block, []).append(value)
        self._members = {block: members for block, members in found.items() if len(members) > 1}
        self._bytes: Dict[Any, Any] = {}

    def whole(self, value: Any) -> Any:
        """The block that a value is a part of, as bytes; None if it is there alone, or is all of it."""
        block = block_of(value)
        if block not in self._members:
            return None
        if block not in self._bytes:
            self._bytes[block] = _as_bytes(self._members[block])
        whole = self._bytes[block]
        return None if whole is value else whole


def _as_bytes(members: List[Any]) -> Any:
    """The memory that some arrays and tensors are in, so far as they use it."""
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    arrays = [each for each in members if numpy is not None and isinstance(each, numpy.ndarray)]
    if not arrays:
        first = members[0]
        return torch.empty(0, dtype=torch.uint8, device=first.device).set_(first.untyped_storage())
    root = _root(numpy, arrays[0])
    if not root.flags.forc:
        return None
    flat = root.ravel(order="K").view(numpy.ndarray).view("u1")
    if len(arrays) < len(members):  # a tensor is in it
        return flat
    bounds = getattr(numpy.lib, "array_utils", numpy).byte_bounds
    start = flat.__array_interface__["data"][0]
    low = min(int(bounds(each)[0]) for each in arrays) - start
    return flat[low - low % _ALIGNED : max(int(bounds(each)[1]) for each in arrays) - start]


def reduced(value: Any, blocks: Blocks, lost: Dict[str, None]) -> Any:
    """How an array or a tensor is pickled; None where pickle does it well."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and type(value) is numpy.ndarray:
        return _reduced_array(value, blocks)
    if torch is not None and isinstance(value, torch.Tensor):
        return _reduced_tensor(torch, value, blocks, lost)
    return None


def _reduced_array(value: Any, blocks: Blocks) -> Any:
    whole = blocks.whole(value)
    if whole is None or type(whole).__module__ != "numpy":
        if value.flags.writeable or value.dtype.hasobject:
            return None
        return (*value.copy().__reduce_ex__(2)[:3], None, None, _set_read_only)
    offset = value.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return (_make_view, (whole, value.dtype, value.shape, value.strides, offset, value.flags.writeable))


def _reduced_tensor(torch: Any, value: Any, blocks: Blocks, lost: Dict[str, None]) -> Any:
    if value.requires_grad and not value.is_leaf:
        lost["the computation behind a tensor, for gradients (call backward() in the same step)"] = None
        return (_make_like, (value.detach(), False))
    plain = type(value) is torch.Tensor
    if value.is_leaf and value.grad is not None:
        make, arguments, *more = value.__reduce_ex__(2)
        if plain:
            make, arguments, more = _make_like, (value.detach(), value.requires_grad), []
        return (make, arguments, (more[0] if more else None, value.grad), None, None, _set_gradient)
    whole = blocks.whole(value) if plain else None
    if whole is None:
        return None
    if value.requires_grad:
        return (_make_like, (value.detach(), True))
    offset = value.data_ptr() - (
        whole.data_ptr() if isinstance(whole, torch.Tensor) else whole.__array_interface__["data"][0]
    )
    return (_make_part, (whole, value.dtype, tuple(value.shape), value.stride(), offset))


def _set_read_only(array: Any, state: Any) -> None:
    array.__setstate__(state)
    array.flags.writeable = False


def _make_view(whole: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    numpy = sys.modules["numpy"]
    view = numpy.ndarray(shape, dtype, whole, offset, strides)
    if not writeable:
        view.flags.writeable = False
    return view


def _make_like(tensor: Any, requires_grad: bool) -> Any:
    return tensor.requires_grad_(requires_grad)


def _set_gradient(tensor: Any, state: Any) -> None:
    own, gradient = state
    if own is not None:
        tensor.__setstate__(own)
    tensor.grad = gradient


def _make_part(whole: Any, dtype: Any, shape: Any, stride: Any, offset: int) -> Any:
    torch: Any = sys.modules["torch"]
    whole = whole if isinstance(whole, torch.Tensor) else torch.from_numpy(whole)
    part = torch.empty(0, dtype=dtype, device=whole.device)
    return part.set_(whole.untyped_storage(), offset // part.element_size(), shape, stride)


OWN: Dict[str, Any] = {
    each.__name__: each for each in (_set_read_only, _make_view, _make_like, _set_gradient, _make_part)
}


def is_alike(one: Any, other: Any) -> bool:
    """Whether two plain values are the same to a program: types, order and missing numbers included."""
    numpy, pandas, torch = (sys.modules.get(name) for name in ("numpy", "pandas", "torch"))
    if numpy is not None and isinstance(one, numpy.ndarray):
        return isinstance(other, numpy.ndarray) and _arrays_alike(numpy, one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_alike, one, other))
    if isinstance(one, dict):
        return list(map(_key, one)) == list(map(_key, other)) and all(
            map(is_alike, one.values(), other.values())
        )
    if isinstance(one, float):
        return repr(one) == repr(other)
    if torch is not None and isinstance(one, torch.Tensor):
        return _tensors_alike(torch, one, other)
    if pandas is not None and isinstance(one, (pandas.DataFrame, pandas.Series)):
        return _frames_alike(one, other)
    if numpy is not None and isinstance(one, numpy.generic):
        return bool(one == other) or bool(one != one and other != other)  # noqa: PLR0124 - not a number
    return bool(one.equals(other)) if hasattr(one, "equals") else bool(one == other)


def _arrays_alike(numpy: Any, one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or not one.flags.writeable:
        return False
    if one.flags.c_contiguous and other.flags.c_contiguous and one.dtype.itemsize in (1, 2, 4, 8):
        whole = (
            "u%d" % one.dtype.itemsize
        )  # bit by bit: what is not a number is equal to itself, and it is fast
        return bool(numpy.array_equal(one.view(whole), other.view(whole)))
    return bool(numpy.array_equal(one, other, equal_nan=one.dtype.kind in "fcmM"))


def _key(key: object) -> Any:
    return (type(key), repr(key))


def _tensors_alike(torch: Any, one: Any, other: Any) -> bool:
    about = [(each.dtype, each.shape, each.device, each.requires_grad) for each in (one, other)]
    if about[0] != about[1] or not one.is_leaf or one.grad is not None:
        return False
    one, other = one.detach(), other.detach()
    if one.is_floating_point() or one.is_complex():
        return bool(torch.allclose(one, other, rtol=0, atol=0, equal_nan=True))
    return bool(torch.equal(one, other))


def _frames_alike(one: Any, other: Any) -> bool:
    if one.attrs != other.attrs or type(one.index) is not type(other.index) or not one.equals(other):
        return False
    if not one.index.equals(other.index) or one.index.names != other.index.names:
        return False
    if getattr(one.index, "freq", None) != getattr(other.index, "freq", None):  # Arrow has no place for it
        return False
    if hasattr(one, "columns"):
        same = one.columns.equals(other.columns) and one.columns.names == other.columns.names
        return bool(same and list(one.dtypes) == list(other.dtypes))
    return bool(one.dtype == other.dtype and one.name == other.name)


def repeats_itself(value: object) -> bool:
    """Whether plain data holds one changeable object in two places, or two arrays in one memory: as a tree
    they would become two, or have two memories.
    """
    seen: Set[Any] = set()
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, _ATOMS):
            continue
        if not isinstance(each, _FROZEN):
            block = block_of(each)
            if id(each) in seen or block in seen:
                return True
            seen.update([id(each)] if block is None else [id(each), block])
        if isinstance(each, dict):
            stack.extend(each.values())
        elif isinstance(each, (list, tuple)):
            stack.extend(each)
    return False


def attributes_of(kind: type) -> Dict[str, Any]:
    """The attributes that the notebook's own classes have beside methods; of other classes none, and of those
    that name constants, which keep a list of what they were asked for.
    """
    if issubclass(kind, enum.Enum):
        return {}
    own = [each for each in reversed(kind.__mro__) if each.__module__ == "__main__"]
    return {
        name: value
        for each in own
        for name, value in vars(each).items()
        if not name.startswith(("__", "_abc_")) and not hasattr(type(value), "__get__")
    }


def reach(value: object) -> Dict[Any, object]:
    """The changeable objects that a value consists of, by their id, and the memory of arrays; they stay alive
    with the dict."""
    found: Dict[Any, object] = {}
    seen = set()
    stack: List[Any] = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, BuiltinFunctionType):
            stack.append(each.__self__)  # of `found.append`, the list
        if id(each) in seen or (isinstance(each, _ATOMS) and not isinstance(each, type)):
            continue
        seen.add(id(each))
        if isinstance(each, type):
            stack.extend(attributes_of(each).values())
            continue
        if not isinstance(each, _FROZEN):
            found[id(each)] = each
        if isinstance(each, FunctionType):
            stack.extend([each.__defaults__, each.__kwdefaults__, each.__closure__, vars(each)])
        elif not _is_whole(each):
            stack.extend(objects_of(each) or gc.get_referents(each))
        else:
            block = block_of(each)
            if block is not None:
                found[block] = each
            stack.append(gradient_of(each))
    return found


def _is_whole(value: Any) -> bool:
    """Whether a value's parts belong to it alone: an array, a tensor, a table, a model."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return not value.dtype.hasobject
    if torch is not None and isinstance(value, torch.Tensor):
        return True
    return type(value).__module__.partition(".")[0] in (
        "pandas",
        "pyarrow",
        "tensorflow",
        "keras",
        "tf_keras",
    )
