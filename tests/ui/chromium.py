"""Finding Chromium for the tests of the dashboard in a real browser."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The program, as $ECHELON_CHROMIUM says or as Debian calls it."""
    named = os.environ.get("ECHELON_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)
