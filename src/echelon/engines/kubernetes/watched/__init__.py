"""Kubeflow jobs that echelon did not create, seen as runs: `k8s://namespace/pytorchjob/name`."""
