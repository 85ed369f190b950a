"""`update_trainjob_status`: progress that a function reports, as it would in a Kubeflow job."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLContext, create_default_context
from urllib import request

_EVERY = 5.0  # seconds between two reports; what comes sooner is left out, as by Kubeflow's
_PATIENCE = 5.0
_last = float("-inf")


def update_trainjob_status(
    progress_percent: int | None = None,
    estimated_remaining_seconds: int | None = None,
    metrics: Mapping[str, float | int | str] | None = None,
) -> bool:
    """Report progress to the agent of this rank, or to Kubeflow's controller in a job of its own. False where
    there is neither, or where it was not taken; it never raises.
    """
    global _last  # noqa: PLW0603 - a process has one training to report of
    url, file = (os.environ.get(f"KUBEFLOW_TRAINER_SERVER_{name}") for name in ("URL", "TOKEN"))
    if not url or not file or time.monotonic() - _last < _EVERY:
        return False
    status: dict[str, object] = {"lastUpdatedTime": datetime.now(UTC).isoformat()}
    if progress_percent is not None:
        status["progressPercentage"] = max(0, min(100, int(progress_percent)))
    if estimated_remaining_seconds is not None:
        status["estimatedRemainingSeconds"] = max(0, int(estimated_remaining_seconds))
    status["metrics"] = [{"name": name, "value": str(value)} for name, value in (metrics or {}).items()]
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        asked = request.Request(url, json.dumps({"trainerStatus": status}).encode(), head)  # noqa: S310 - HTTP
        with request.urlopen(asked, timeout=_PATIENCE, context=_trusting()):  # noqa: S310 - or HTTPS
            _last = time.monotonic()
            return True
    except (OSError, ValueError):
        return False


def _trusting() -> SSLContext | None:
    """The certificate of Kubeflow's controller; the agent needs none."""
    file = os.environ.get("KUBEFLOW_TRAINER_SERVER_CA_CERT")
    return create_default_context(cafile=file) if file else None
