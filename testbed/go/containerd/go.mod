module testbed/containerd

go 1.26

require github.com/containerd/containerd/v2 v2.2.0
