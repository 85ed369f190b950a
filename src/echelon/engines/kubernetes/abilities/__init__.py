"""What a cluster can do beside runs: volumes, shells, ports, samples, check-ups, a user's own objects."""
