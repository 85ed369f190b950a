"""The keeper: it takes the workers' checkpoints and results, so that their pods can go.

`keeper` and `shelf` run in the keeper's pod, `handover` and `carrier` beside a worker; `room` is pure."""
