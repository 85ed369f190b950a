"""Watches and logs of a run as one stream, and the list of all runs. It only reads."""
