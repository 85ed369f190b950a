"""One run on this machine: wait until it fits, start its agents, keep them alive, write down how it ended.

A process of its own for every run (`python -m echelon.supervisor RUNDIR LOCK RESERVED [TERMINAL]`), started
by the local engine; it plays the part that a Job controller plays in a cluster. It is the ancestor of
everything the run starts, adopts every orphan, and leaves nothing behind. While it holds the lock it was
handed the run is alive; if it is killed, the agents notice and end, and the next command writes down the
loss. RESERVED is the lock on its results folder. It starts quickly: what only a queued run needs is imported
only there. TERMINAL, a descriptor, leads to the terminal of a user who sits before a single rank."""
