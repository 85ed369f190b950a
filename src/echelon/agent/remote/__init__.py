"""Ranks that a launcher (mpirun) starts on all workers: the agents are its remote shell, and take its ranks
in."""
