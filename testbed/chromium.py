"""A browser for the tests of web pages: the one that is there, or Debian's headless Chromium, installed."""

from __future__ import annotations

import os
import shutil
import sys

from echelon.errors import Unavailable
from testbed import debian

VARIABLE = "ECHELON_CHROMIUM"  # names a program that Debian did not install
PACKAGE = "chromium-headless-shell"
NAMES = (PACKAGE, "chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The program, as $ECHELON_CHROMIUM says or as Debian calls it."""
    return os.environ.get(VARIABLE) or next((found for name in NAMES if (found := shutil.which(name))), None)


def missing() -> str:
    """Why this machine has no browser for tests and can install none, in one line; empty if it has or can."""
    if find_chromium():
        return ""
    if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get"):
        return ""
    return f"needs Chromium: apt-get install {PACKAGE}, as root, or {VARIABLE} that names the program"


def install() -> str:
    """The browser, installed if there is none; raises Unavailable with the reason if there can be none."""
    if reason := missing():
        raise Unavailable(f"the tests in a browser: {reason}")
    if (found := find_chromium()) is None:
        debian.install([PACKAGE])
        found = find_chromium()
    if found is None:
        raise Unavailable(f"{PACKAGE} is installed, and not on the PATH")
    return found
