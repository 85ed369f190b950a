"""What an agent writes: the ranks' lines, events, and the termination message of its container."""
