"""The queue of all namespaces as the manager sees it, and how one of its replicas decides at a time.

`election` elects that replica, `rules` reads the administrator's limits, `snapshot` turns Jobs and records
into the values that `echelon.queueing` decides on, `dispatcher` asks the API server and acts."""
