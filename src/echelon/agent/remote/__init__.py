"""Ranks that a launcher (mpirun, horovodrun) starts on all workers: the agents are its remote shell."""
