"""Names that settings had before: keys, keywords and flags by them are accepted for a release, each with a
warning that says the one of now. With the release after it this module goes, and what names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

FORMER: Mapping[str, tuple[str, str]] = {
    "resume": ("reuse_results", "{}"),
    "queue": ("local_queue", "{}"),
    "cpus_per_gpu": ("cpus", "{}/gpu"),
    "memory_per_gpu": ("memory", "{}/gpu"),
}
"""The name before: the one of now, and how the value is written there."""
SWITCHES = frozenset(("resume",))
"""Those whose flags take no value."""


HIDDEN: Mapping[str, str] = {"linger": "keep TIME", "keep_size": "keep TIME:SIZE"}
"""Settings whose meaning another one has now; they still act, and are in no help."""


class FormerName(FutureWarning):
    """A setting was given by the name that it had before."""


def name_of_now(former: str, value: object) -> tuple[str, object]:
    """The setting that a former name means, and its value as it is written there; with a warning."""
    now, form = FORMER.get(former) or (former, "{}")
    if form != "{}":
        value = form.format(value)
    instead = HIDDEN.get(former) or (now if form == "{}" else f"{now}: {value}")
    warnings.warn(f"{former} is now {instead}; the old name works until the next release", FormerName, 3)
    return now, value
