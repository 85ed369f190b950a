"""The command line in this process, as the tests of the command line have it."""

from __future__ import annotations

from tests.cli.conftest import call

__all__ = ["call"]
