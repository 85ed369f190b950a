"""Print the job file's JSON Schema: `python -m echelon.jobfile` (`make schema`)."""

from __future__ import annotations

import json
import sys

from echelon.jobfile.json_schema import schema

sys.stdout.write(json.dumps(schema(), indent=2, sort_keys=True) + "\n")
