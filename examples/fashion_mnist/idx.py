"""The IDX file format, in which MNIST and its relatives are published: a magic number, the shape, the bytes.

`fetch_data.py` checks with it what it has fetched, `data.py` makes tensors of it. Standard library only,
since data may be fetched where there is no torch yet.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path


class DataError(Exception):
    """Data that cannot be used; the message is the one line to show."""


def find_idx(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder, as it is or compressed."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_idx(path: Path) -> tuple[tuple[int, ...], bytearray]:
    """Shape and values of an IDX file of unsigned bytes; a DataError if it is anything else, or damaged."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    # The magic number: two zeros, the type of the values (8: unsigned bytes), the number of dimensions.
    zeros, kind, dimensions = struct.unpack_from(">HBB", content) if len(content) >= 4 else (0, 0, 0)
    header = 4 + 4 * dimensions
    if zeros != 0 or kind != 8 or dimensions == 0 or len(content) < header:
        raise DataError(f"{path} is not an IDX file of unsigned bytes")
    shape: tuple[int, ...] = struct.unpack_from(f">{dimensions}I", content, 4)
    promised, found = math.prod(shape), len(content) - header
    if found != promised:
        raise DataError(f"{path} holds {found} values, but its header promises {promised}")
    return shape, bytearray(memoryview(content)[header:])
