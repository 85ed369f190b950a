"""What is read of runs: watches and logs as one stream, evidence of how one stands, the list of all. Reads
only."""
