"""The process that looks after one run on this machine: it waits until the run fits, starts its agents, keeps
them alive, and writes down how it ended.

One for every run (`python -m echelon.supervisor RUNDIR LOCK RESERVED [TERMINAL]`), started by the local
engine, or forked from one process where an executor starts many (`forking`). It plays the part of the Job
controller in a cluster. It is the ancestor of everything the run starts, adopts every orphan, and leaves
nothing behind. While it holds the lock that it was handed, the run is alive; if it is killed, the agents
notice and end, and the next command writes down the loss. RESERVED is the lock on the results folder,
TERMINAL a descriptor that leads to the terminal of a user who sits before a single rank. It starts quickly:
what only a queued run needs is imported only there."""
