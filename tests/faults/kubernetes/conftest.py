"""A terminal in the test's own namespace, and Kubeflow's training operator."""

from tests.faults.kubernetes.terminal import terminal
from tests.kubeflow.operators import operator

__all__ = ["operator", "terminal"]
