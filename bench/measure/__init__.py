"""What the benchmarks beside this folder share: samples taken in turn, a table, the real agent, the system's word on a process."""
