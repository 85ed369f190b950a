"""The container's last words: the verdict, or why an agent left, where Kubernetes keeps it after the pod's
end.

It keeps 4,096 bytes, so the longest parts are cut first and the cause stays. Who calls it: `agent.py`."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

LIMIT = 4096
_WORDS = ("summary", "error", "reason")


def write(path: str | None, words: dict[str, Any]) -> None:
    """Write the last words, if there is a place for them.

    Not by renaming: the file is mounted. What cannot be written is in the log as well.
    """
    if path is None:
        return
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(fit(words))
    except OSError:
        pass


def fit(words: dict[str, Any], limit: int = LIMIT) -> bytes:
    """The words as JSON of at most so many bytes.

    First the tail of the cause goes, from its beginning, then the others that failed, then the ends of long
    sentences.
    """
    words = dict(words)
    if len(_encode(words)) <= limit:
        return _encode(words)
    cause = dict(words.get("cause") or {})
    if cause:
        words["cause"] = cause
    for name, from_end in (("tail", False), ("others", True)):
        kept = list(cause.get(name) or ())
        while kept and len(_encode(words)) > limit:
            kept.pop(-1 if from_end else 0)
            cause[name] = kept
    length = limit
    while len(_encode(words)) > limit and length > 16:
        length //= 2
        for part in (words, cause):
            for name in _WORDS:
                if isinstance(part.get(name), str) and len(part[name]) > length:
                    part[name] = part[name][: length - 1] + "…"
    return _encode(words) if len(_encode(words)) <= limit else b"{}"


def _encode(words: dict[str, Any]) -> bytes:
    return json.dumps(words, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
