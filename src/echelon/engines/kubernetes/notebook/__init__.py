"""A user's Jupyter server in a cluster: a Job with one pod, a Secret with the token, a claim for the files.

`objects` are what it is made of, `servers` makes, reaches and removes it, and knows when it answers and why
not. Jupyter listens on the pod's loopback alone: the API server's port-forward is the only way in, so
that no other pod can even try a token."""
