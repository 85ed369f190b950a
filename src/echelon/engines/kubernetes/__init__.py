"""Runs as Jobs of a Kubernetes cluster."""
