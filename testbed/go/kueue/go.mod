module testbed/kueue

go 1.26

require sigs.k8s.io/kueue v0.14.0

// For equal versions of what it shares with `job-controllers`, which is then compiled once.
require (
	github.com/kubeflow/mpi-operator v0.7.0 // indirect
	sigs.k8s.io/controller-runtime v0.22.3 // indirect
)
