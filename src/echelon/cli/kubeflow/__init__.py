"""Kubeflow jobs on the command line: run by echelon's own workers, or by Kubeflow's controller."""
