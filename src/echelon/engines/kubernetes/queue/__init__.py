"""Admission in a cluster: Jobs that wait are started, verified, made to wait again, or withdrawn."""
