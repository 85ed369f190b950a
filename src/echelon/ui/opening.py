"""Opening the page in the user's browser, without its token on a command line that other users can list."""

from __future__ import annotations

import html
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def has_browser() -> bool:
    """Whether there is a screen to show one on; browsers for terminals are none."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


@contextmanager
def opened(address: str) -> Iterator[None]:
    """Have the browser open a file of this user's alone that leads to the address, until the end."""
    with tempfile.TemporaryDirectory(prefix="echelon-ui-") as folder:
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(
            f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" '
            f'content="0; url={html.escape(address)}"><title>echelon</title>',
            encoding="utf-8",
        )
        webbrowser.open(page.as_uri())
        yield
