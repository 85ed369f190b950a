"""The ranks of one worker: started, read from, watched, stopped, and why one failed.

`ranks` are those that the agent starts, `launched` those that a launcher starts (mpirun). `ladder` sends the
signals of a stop, `leftovers` ends what a rank has left, `report` says why a rank failed."""
