"""The folder of a local run: every name in it, and what reads and writes it."""
