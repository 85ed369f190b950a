"""The ranks of one worker: their Python and environment, started, watched, stopped, and why one failed."""
