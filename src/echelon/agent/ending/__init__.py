"""How a worker ends: what it holds, what it says of it, when it may leave, and its exit code.

`hold.py`, one floor down, decides how long; it is pure."""
