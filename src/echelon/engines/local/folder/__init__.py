"""The folder of a local run: its names, and reading and writing what is in it."""
