"""Nodes and pods as a Cluster, and which runs use what."""
