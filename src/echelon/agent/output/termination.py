"""The container's termination message: the verdict, or why an agent left, which Kubernetes keeps after the
end.

It is JSON, in one line; where there is a cause, its summary stands in a line before it, for `kubectl
describe`. Kubernetes keeps 4,096 bytes, so the longest parts are cut first and the cause stays."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

LIMIT = 4096
_LONGEST_SUMMARY = 300  # bytes
_SENTENCES = ("summary", "error", "reason", "peers")


def write(path: str | None, content: dict[str, Any]) -> None:
    """Write the termination message, if there is a file for it.

    The file is mounted, so it cannot be replaced by renaming. What cannot be written is in the log as well.
    """
    if path is None:
        return
    try:
        with open(path, "wb", buffering=0) as file:
            summary = _summary(content)
            file.write(summary + fit(content, LIMIT - len(summary)))
    except OSError:
        pass


def _summary(content: dict[str, Any]) -> bytes:
    cause = content.get("cause") or {}
    text = " ".join(str(cause.get("summary") or "").split()).encode("utf-8", "replace")
    return text[:_LONGEST_SUMMARY].decode("utf-8", "ignore").encode() + b"\n" if text else b""


def fit(content: dict[str, Any], limit: int = LIMIT) -> bytes:
    """The content as JSON of at most `limit` bytes.

    First the tail of the cause is cut, from its beginning, then the list of other failures, then that of what
    is missing, then the ends of long sentences.
    """
    content = dict(content)
    if len(_encode(content)) <= limit:
        return _encode(content)
    cause = dict(content.get("cause") or {})
    if cause:
        content["cause"] = cause
    for part, name, from_end in ((cause, "tail", False), (cause, "others", True), (content, "missing", True)):
        kept = list(part.get(name) or ())
        while kept and len(_encode(content)) > limit:
            kept.pop(-1 if from_end else 0)
            part[name] = kept
    length = limit
    while len(_encode(content)) > limit and length > 16:
        length //= 2
        for part in (content, cause):
            for name in _SENTENCES:
                if isinstance(part.get(name), str) and len(part[name]) > length:
                    part[name] = part[name][: length - 1] + "…"
    return _encode(content) if len(_encode(content)) <= limit else b"{}"


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
