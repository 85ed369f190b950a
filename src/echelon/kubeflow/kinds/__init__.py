"""The kinds of Kubeflow's jobs, one file each, and what all of them have: replicas and a policy."""
