"""Runs on this machine: folders, devices, processes."""
