"""From pods, Jobs and the leader's log to a run's events, and to whether it is over, and how. Pure.

`standing` is the one answer to that question; all other code asks it."""
