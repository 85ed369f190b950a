"""Whether a value came back from its files as it was, and what two values share. Libraries are never imported
to recognise a value."""

from __future__ import annotations

import enum
import gc
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Dict, List, Set

from echelon.notebook.beside import memory

_ATOMS = (int, float, complex, str, bytes, type(None), type, ModuleType, BuiltinFunctionType, CodeType, range)
_FROZEN = (tuple, frozenset)


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
            block = memory.block_of(each)
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
            stack.extend(memory.objects_of(each) or gc.get_referents(each))
        else:
            block = memory.block_of(each)
            if block is not None:
                found[block] = each
            stack.append(memory.gradient_of(each))
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
