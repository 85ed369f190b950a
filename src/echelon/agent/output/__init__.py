"""What an agent writes: the ranks' lines, log files, events, and the container's termination message."""
