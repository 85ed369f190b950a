"""The agent: what stands beside the ranks of one worker, on this machine or in a pod.

It starts them, forwards their output, notices the first failure, stops the rest, starts the gang again while
restarts are left, and writes down the root cause. It uses the standard library alone, runs on Python 3.8, and
imports nothing from the client, so that it can be shipped into any image that has a Python. The client gives
it a task (`task.py`) and reads its output (`output.py`)."""
