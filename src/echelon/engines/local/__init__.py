"""Runs on this machine: a folder and a supervisor process for each.

`engine` is what clients call, `capacity` what runs hold of the machine and what is left, `ending` stops runs.
Agents are forks of their supervisor (`agents`), and the supervisors of an executor's runs are forks of one
process (`forks`), since to start an interpreter costs more than all else."""
