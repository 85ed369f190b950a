"""A real Kubernetes on one small Linux machine, without Docker and without an image registry.

The Kubernetes tests run against it: API server, etcd, scheduler, controller manager, kubelets with
containerd, a pod network, cluster DNS, kube-proxy. `python -m testbed` is the command, `testbed.fixtures` the
pytest plugin; `docs/testing.md` describes both.
"""
