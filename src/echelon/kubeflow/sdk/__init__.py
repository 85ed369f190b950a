"""The calls of Kubeflow's Python clients, answered by echelon's own runs: no operator is needed.

A notebook that used them changes its import line, and nothing else."""
