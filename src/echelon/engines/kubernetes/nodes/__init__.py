"""Nodes and pods as a Cluster, and who uses what."""
