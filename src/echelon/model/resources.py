"""The resources that a worker requests, and their parsers ("2", "500m", "16Gi", "4:8", "90m")."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field

from echelon.errors import InvalidJob
from echelon.values import frozen

_MEMORY_UNITS = {
    "": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip
_TIME_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@frozen
class Amount:
    """A request, and the limit where one is set."""

    request: float
    limit: float | None = None


@frozen
class Resources:
    """What one worker requests. Memory counts in bytes, CPUs in cores."""

    gpus: int = 0
    gpu_type: str | None = None
    cpus: Amount | None = None
    memory: Amount | None = None
    other: Mapping[str, int] = field(default_factory=dict)


def parse_cpus(field_name: str, text: object) -> Amount:
    """Read cores: `2`, `0.5`, `500m`, or request and limit as `2:4`."""
    return _amount(field_name, text, _cores, "cores such as 2, 0.5 or 500m; request:limit as 2:4")


_LEAST_MEMORY = 2**20  # bytes; no Python runs with less: a smaller number lacks its unit


def parse_memory(field_name: str, text: object) -> Amount:
    """Read memory: `16Gi`, `500M`, plain bytes, or request and limit as `16Gi:32Gi`."""
    amount = _amount(field_name, text, _bytes, "an amount such as 16Gi or 500M; request:limit as 16Gi:32Gi")
    if amount.request < _LEAST_MEMORY:
        wanted = f"{text}Gi" if str(text).isdigit() else "16Gi"
        raise InvalidJob(field_name, text, "is less than a mebibyte", hint=f"did you mean {wanted}?")
    return amount


def parse_size(field_name: str, text: object) -> int:
    """Read one size, in whole bytes: `16Gi`, `500M`, plain bytes."""
    hint = "an amount such as 16Gi or 500M"
    amount = _amount(field_name, text, _bytes, hint)
    if amount.limit is not None or amount.request < 1:
        raise InvalidJob(field_name, text, "is not a size", hint=f"use {hint}")
    return round(amount.request)


def parse_duration(field_name: str, text: object) -> float:
    """Read a time: seconds, or `30s`, `5m`, `2h`, `1d`, or several together as `1h30m`."""
    hint = "use seconds, or a time such as 30s, 5m, 2h or 1h30m"
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = float(text)
    else:
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", str(text).strip())
        if not parts or "".join(n + u for n, u in parts) != str(text).strip():
            raise InvalidJob(field_name, text, "is not a time", hint=hint)
        seconds = sum(float(number) * _TIME_UNITS[unit] for number, unit in parts)
    if not 0 < seconds < math.inf:
        raise InvalidJob(field_name, text, "is not a time above zero", hint=hint)
    return seconds


def parse_duration_or_zero(field_name: str, text: object) -> float:
    """Read a time that may be none at all: 0."""
    return 0.0 if str(text).strip() in ("0", "0s", "0.0") else parse_duration(field_name, text)


def write_duration(seconds: float) -> str:
    """Write a time as `parse_duration` reads it."""
    return f"{seconds:.15g}s"


def write_amount(amount: Amount) -> str:
    """Write a request and its limit as they are read."""
    ends = [each for each in (amount.request, amount.limit) if each is not None]
    return ":".join(f"{each:.15g}" for each in ends)


def format_memory(amount: float) -> str:
    """Format bytes for messages: 1.5 GiB."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= size:
            count = amount / size
            return f"{count:.3g} {unit}" if count < 999.5 else f"{count:.0f} {unit}"
    return f"{amount:.0f} B"


def _amount(field_name: str, text: object, read: Callable[[str], float], hint: str) -> Amount:
    pieces = [] if isinstance(text, bool) else str(text).split(":")
    try:
        values = [read(piece.strip()) for piece in pieces]
    except ValueError:
        values = []
    if len(values) not in (1, 2) or not all(map(math.isfinite, values)):
        raise InvalidJob(field_name, text, "is not an amount", hint=f"use {hint}")
    if values[0] <= 0:
        raise InvalidJob(field_name, text, "is not above zero", hint=f"use {hint}")
    if len(values) == 2 and values[1] < values[0]:
        raise InvalidJob(field_name, text, "has a limit below its request", hint=f"use {hint}")
    return Amount(request=values[0], limit=values[1] if len(values) == 2 else None)


def _cores(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _bytes(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if match is None or match[2] not in _MEMORY_UNITS:
        raise ValueError(text)
    return float(match[1]) * _MEMORY_UNITS[match[2]]
