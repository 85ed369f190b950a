"""One worker, beside its ranks: the same program on this machine and in a pod.

It starts the ranks, forwards their output, notices the first failure, stops the rest, starts the gang again
while restarts are left, and writes down the root cause. It uses the standard library alone, runs on Python
3.8, and imports nothing from the client, so that any image with a Python can run it. The client gives it a
task (`task.py`) and reads what it writes (`output/`). `agent.py` connects the parts; `orders.py` is what
clients ask of it; `several.py` is many agents as forks of one supervisor."""
