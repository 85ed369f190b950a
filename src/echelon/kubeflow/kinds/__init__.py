"""The kinds of Kubeflow jobs, one file each, and what all of them have: replicas and a policy."""
