"""What is seen of a run, at a Python prompt, in a notebook and in a terminal: events, metrics, samples,
lines, what its function returned, and its failure."""
