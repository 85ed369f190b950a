"""Samples of what a worker's ranks use, and for how long they have done nothing."""
