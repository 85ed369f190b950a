"""What a cluster offers to runs, and what is missing: the lines of `echelon doctor --on k8s`."""

from echelon.engines.kubernetes.doctor.checks import check_up
from echelon.engines.kubernetes.doctor.rights import CLUSTER_ROLE, FULL_ROLE, MINIMAL_ROLE

__all__ = ["CLUSTER_ROLE", "FULL_ROLE", "MINIMAL_ROLE", "check_up"]
