"""Fixtures for the tests of the panel."""

from tests.faults.kubernetes.terminal import terminal

__all__ = ["terminal"]
