"""Stands for tensorboardX in Kubeflow's examples. PyTorch's own writer imports TensorFlow where it is
installed, which a process with PyTorch does not survive.
"""

from __future__ import annotations


class SummaryWriter:
    """Writes nothing."""

    def __init__(self, _folder: str) -> None:
        pass

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """One point of a curve."""
