"""A record and a plan as Kubernetes objects. Pure."""
