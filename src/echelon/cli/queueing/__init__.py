"""The commands of the queue: look at it, serve it, install what serves it."""
