module testbed/job-controllers

go 1.26

require github.com/kubeflow/trainer/v2 v2.1.0

// Releases that have the same version of Kubernetes' libraries: these are compiled once for all.
require (
	github.com/kubeflow/mpi-operator v0.7.0
	sigs.k8s.io/jobset v0.10.1
)

// Built by itself, since it has an older Trainer; named here, and the others there, for equal versions of the rest.
require sigs.k8s.io/kueue v0.14.0 // indirect
