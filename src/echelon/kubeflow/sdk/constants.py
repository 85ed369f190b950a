"""The names that `kubeflow.training.constants` has, as far as notebooks use them."""

API_VERSION = "kubeflow.org/v1"
PYTORCHJOB_KIND = "PyTorchJob"
TFJOB_KIND = "TFJob"
MPIJOB_KIND = "MPIJob"

JOB_CONDITION_CREATED = "Created"
JOB_CONDITION_RUNNING = "Running"
JOB_CONDITION_RESTARTING = "Restarting"
JOB_CONDITION_SUCCEEDED = "Succeeded"
JOB_CONDITION_FAILED = "Failed"

REPLICA_TYPE_CHIEF = "Chief"
REPLICA_TYPE_PS = "PS"
REPLICA_TYPE_MASTER = "Master"
REPLICA_TYPE_WORKER = "Worker"
REPLICA_TYPE_LAUNCHER = "Launcher"
