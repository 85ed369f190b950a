"""What a cluster can do beside running runs: volumes, shells, ports, samples, check-ups, a user's own
objects."""
