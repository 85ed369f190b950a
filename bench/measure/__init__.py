"""What the benchmarks beside this folder share: samples taken in turn, a table, the real agent, /proc."""
