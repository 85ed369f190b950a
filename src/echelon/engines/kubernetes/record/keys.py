"""The keys and annotations of a record. All of them are here and nowhere else."""

from __future__ import annotations

# Annotations of the record.
SCHEMA = "echelon.dev/schema"
VERSION = "echelon.dev/version"  # of the client that recorded the run
STOP = "echelon.dev/stop"  # {"at", "reason", "outcome", "now", "grace"}
COLLECTED = "echelon.dev/collected"  # {"at", "host", "path", "missing"}
SHIPPED = "echelon.dev/shipped"  # the sizes of what the run was shipped
CLAIM = "echelon.dev/tender"  # {"holder", "until"}
DIALECT = "echelon.dev/dialect"  # which kind of objects the workers are made of

# Keys of its data.
RECORD = "record.json"
PLAN = "plan.json"  # once it has ended: its Jobs, which have it, may go before
FINISHED = "finished.json"
