"""The ranks of one worker: started, watched, stopped, and why one failed."""
