"""The command of the queue."""
