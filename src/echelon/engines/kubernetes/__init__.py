"""Runs as Jobs of a Kubernetes cluster, with nothing installed in it.

`engine` is what clients call. `submitting` makes runs, `ending` stops and forgets them, `objects` makes and
removes objects so that every step may be repeated. `ledger` is what a run's Jobs say of its admission, and
`names` every name, label and path in a pod: both pure."""
