"""The size of the caller's terminal, for ranks whose output the caller shows there."""

from __future__ import annotations

import os
from collections.abc import Mapping

_STANDARD_ERROR = 2  # standard output may be a file while progress is shown


def size_for(ranks: int, environment: Mapping[str, str], terminal: int = _STANDARD_ERROR) -> dict[str, str]:
    """Variables with the size of the terminal, less the rank's number before each line; none where there is
    no terminal. tqdm reads only its own; of a full line, some terminals would go on to the next.
    """
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        return {}
    columns = max(20, size.columns - (len(f"[{ranks - 1}] ") if ranks > 1 else 0))
    found = {"COLUMNS": str(columns), "LINES": str(size.lines), "TQDM_NCOLS": str(columns - 1)}
    return {name: environment.get(name, value) for name, value in found.items()}
