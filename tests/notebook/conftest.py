"""Somebody at a terminal with a kubeconfig, for pipelines in a real cluster."""

from __future__ import annotations

from tests.faults.kubernetes.terminal import terminal

__all__ = ["terminal"]
