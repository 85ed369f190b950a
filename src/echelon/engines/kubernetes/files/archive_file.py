"""An archive of code as a file, to be copied: the same bytes are the same file, whenever they are written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TIME = 1_000_000_000  # the same for all archives: what has the same name, size and time is there already


@contextmanager
def archive_file(data: bytes) -> Iterator[Path]:
    """Have the archive in a temporary file."""
    with tempfile.NamedTemporaryFile(prefix="echelon-code-") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), 0o644)  # whatever user the workers are
        os.utime(file.name, (_TIME, _TIME))
        yield Path(file.name)
