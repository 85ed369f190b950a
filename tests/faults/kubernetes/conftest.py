"""A terminal in the test's own namespace."""

from tests.faults.kubernetes.terminal import terminal

__all__ = ["terminal"]
