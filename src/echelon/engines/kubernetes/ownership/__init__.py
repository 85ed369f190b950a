"""Whose an object is: a run's own, or made for it by a controller.

`belonging` decides, pure; `between` are the objects that Kubeflow's controllers make between a job and its
pods."""
