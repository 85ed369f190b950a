"""A volume: storage that stays when workers are gone, and the rule for removing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from echelon.errors import StateTrouble
from echelon.values import frozen

MODES = {
    "rwo": "ReadWriteOnce",
    "rwx": "ReadWriteMany",
    "rox": "ReadOnlyMany",
    "rwop": "ReadWriteOncePod",
}
"""Access modes as Kubernetes names them, by the short names that people use."""


@frozen
class Volume:
    """A claim. `size` in bytes is what it has or, while it is not bound, what it asks for; `pods` and `runs`
    are those that use it, or wait for it.
    """

    name: str
    status: str
    size: int
    modes: tuple[str, ...]
    storage_class: str | None = None
    reclaim: str | None = None  # what happens to the data when the claim is removed; None if not known
    created: float = 0.0
    pods: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # where those pods are
    labels: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""  # which no other claim ever has


def check_unused(volume: Volume) -> None:
    """Raise StateTrouble, which names the users of a volume, if there are any."""
    if volume.pods or volume.runs:
        users = [*(f"run {name}" for name in volume.runs), *(f"pod {name}" for name in volume.pods)]
        shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
        raise StateTrouble(
            f"volume {volume.name} is in use by {shown}", hint="stop them first; then it can be removed"
        )
