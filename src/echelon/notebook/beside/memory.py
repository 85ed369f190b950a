"""Arrays and tensors that share memory: a view and its array, `torch.from_numpy`, a model's `state_dict()`.
They are written as parts of one block, so that they still share it in the next step; a view that comes alone
is written alone. And what pickle leaves out of them: gradients, the read-only flag."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

_DENSE = "torch.strided"
_ALIGNED = 16  # bytes


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
