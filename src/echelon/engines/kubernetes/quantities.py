"""Amounts as Kubernetes writes them (`1500m`, `2Gi`, `1e3`, `128974848`), read exactly.

Sums of what nodes have and pods request count in thousandths, as whole numbers, since sums of fractions would
drift."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_FORM = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?")
_SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip

_LONGEST = 64  # characters of an amount
_LARGEST = 2**63 - 1  # that Kubernetes counts to

Quantity = str | int | float  # the API server writes strings; users also write numbers


@lru_cache(maxsize=4096)  # a cluster has many pods, but few different amounts
def to_thousandths(quantity: Quantity) -> int:
    """An amount in thousandths, rounded up as the scheduler does. ValueError if it is not an amount."""
    written = str(quantity)
    match = _FORM.fullmatch(written) if len(written) <= _LONGEST else None
    if match is None:
        raise ValueError(f"not a quantity: {written[:_LONGEST]!r}")
    sign, number, suffix = match[1], match[2], match[3] or ""
    scale = _SUFFIXES.get(suffix)
    if scale is None:  # 1e3; a lone E was an exa
        scale = Fraction(10) ** int(suffix[1:])
    exact = Fraction(number.rstrip(".")) * scale * (-1000 if sign == "-" else 1000)
    return -(-exact.numerator // exact.denominator)


def to_whole(quantity: Quantity) -> int:
    """An amount of indivisible things (GPUs, bytes, pods), rounded up."""
    return -(-to_thousandths(quantity) // 1000)


def amount_of(quantity: object) -> int:
    """An amount that an object states, in thousandths and within Kubernetes' bounds; 0 for what is none."""
    if not isinstance(quantity, Quantity):
        return 0
    try:
        return min(max(0, to_thousandths(quantity)), 1000 * _LARGEST)
    except ValueError:
        return 0
