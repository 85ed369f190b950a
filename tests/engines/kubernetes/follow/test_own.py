"""Whose a run is, by the cluster's name for its user or the local one."""

from __future__ import annotations

import pytest

from echelon.engines.kubernetes.follow.listing import is_own
from echelon.model.status import RunSummary


@pytest.mark.parametrize(
    ("owner", "user", "identity", "own"),
    [
        ("ann@corp", "root", "ann@corp", True),
        ("ann@corp", "root", "bob@corp", False),  # in containers everybody is root
        ("ann@corp", "ann-laptop", "ann@corp", True),
        ("ann@corp", "root", "", True),  # the cluster does not say who asks
        ("ann@corp", "ann", "", False),
        ("root", "", "ann@corp", True),  # recorded before owners were asked for
        ("ann", "", "ann@corp", False),
        ("", "", "ann@corp", True),  # a record that cannot be read
        ("ann@corp", "", "ann@corp", True),  # another, whose owner is still known
        ("bob@corp", "", "ann@corp", False),
    ],
)
def test_whose_a_run_is(owner: str, user: str, identity: str, own: bool) -> None:
    row = RunSummary(name="r", uri="k8s://r", state="running", created=1.0, owner=owner, user=user)
    assert is_own(row, identity, "root") is own
