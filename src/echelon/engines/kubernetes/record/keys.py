"""The keys and annotations of a record. All of them are here and nowhere else."""

from __future__ import annotations

# Annotations of the record.
SCHEMA = "echelon.dev/schema"
VERSION = "echelon.dev/version"  # of the client that recorded the run
STOP = "echelon.dev/stop"  # {"at", "reason", "outcome", "now", "grace"}
ADMITTED = "echelon.dev/admitted"  # when the run got its plan
STARTED = "echelon.dev/started"  # when all objects of its plan existed
TRIED = "echelon.dev/tended"  # when admission of a queued run was last tried
COLLECTED = "echelon.dev/collected"  # {"at", "host", "path", "missing"}
SHIPPED = "echelon.dev/shipped"  # the sizes of what the run was shipped
CLAIM = "echelon.dev/tender"  # {"holder", "until"}
DIALECT = "echelon.dev/dialect"  # which kind of objects the workers are made of
HELD = "echelon.dev/held"  # "true": its Jobs exist from the beginning, and wait; `held` reads the rest there

# Keys of its data.
RECORD = "record.json"
PLAN = "plan.json"
QUEUED = "queued.json"
FINISHED = "finished.json"
