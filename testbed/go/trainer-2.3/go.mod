module testbed/trainer-2.3

go 1.26

require github.com/kubeflow/trainer/v2 v2.3.0

require sigs.k8s.io/jobset v0.12.0

// Built by itself, since it has an older Trainer; named here for equal versions of the rest.
require sigs.k8s.io/kueue v0.19.2 // indirect
