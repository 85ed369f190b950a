"""Metrics of a run, found in what its ranks print and in TensorBoard's files, when they are read: pure.

Nothing is parsed while a run trains, and nothing of it is stored: every line of every rank is kept with its
rank and its time anyway. So a training process pays nothing, runs of older versions have metrics too, and a
better parser, or another `--metric-pattern`, applies to runs that are long over."""
