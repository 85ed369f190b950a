"""Files between this machine, pods and volumes; the results of a run."""
