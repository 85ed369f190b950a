"""Admission in a cluster: Jobs made to wait or to start, admitted, made to wait again, withdrawn; Kueue's
Workload."""
