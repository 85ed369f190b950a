"""Messages between the user's terminal and a rank's: a kind of one byte, a length of four, the content.

The command that the user started has one end of a socket pair, the agent of the only worker the other. Bytes
of a terminal are no text, so that the lines of JSON of other connections do not fit."""

from __future__ import annotations

import struct

# From the user's terminal: keys as they were typed, its rows and columns, "the command was continued".
KEYS, SIZE, CONTINUED = b"k", b"s", b"c"
# From the rank's: it has begun, what it writes, "Ctrl-Z stopped it", it has ended.
BEGUN, OUTPUT, SUSPENDED, ENDED = b"B", b"O", b"S", b"E"
_KINDS = frozenset((KEYS, SIZE, CONTINUED, BEGUN, OUTPUT, SUSPENDED, ENDED))
_HEAD = struct.Struct("!cI")
_LONGEST = 1024 * 1024


def encode(kind: bytes, content: bytes = b"") -> bytes:
    """The bytes of one message."""
    return _HEAD.pack(kind, len(content)) + content


def encode_size(rows: int, columns: int) -> bytes:
    """The message that tells the size of a terminal."""
    return encode(SIZE, struct.pack("!HH", rows, columns))


def decode_size(content: bytes) -> tuple[int, int]:
    """Rows and columns."""
    rows, columns = struct.unpack("!HH", content)
    return rows, columns


class Decoder:
    """Puts messages together from pieces. Raises ValueError for what is none: an agent was killed within a
    message, and its successor cannot know where that one ends.
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Take the next bytes, and return the messages that are complete with them."""
        self._data += data
        found = []
        while len(self._data) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._data)
            if kind not in _KINDS or length > _LONGEST:
                raise ValueError("not a message of a terminal: %r" % kind)
            end = _HEAD.size + length
            if len(self._data) < end:
                break
            found.append((kind, bytes(self._data[_HEAD.size : end])))
            del self._data[:end]
        return found
