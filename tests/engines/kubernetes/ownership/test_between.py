"""What is between a job of Kubeflow's and its pods, read with one list for each kind."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from tests.engines.kubernetes.stand_in import Answer, StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.ownership.between import Between, read_between

SERVED = {
    "kind": "APIResourceList",
    "resources": [{"name": "jobsets", "kind": "JobSet", "namespaced": True}],
}


def listing(*names: str) -> Answer:
    items = [{"metadata": {"name": name, "uid": f"uid-of-{name}"}} for name in names]
    return says(200, {"kind": "List", "metadata": {}, "items": items})


def asked(stand_in: StandIn) -> list[tuple[str, dict[str, list[str]]]]:
    """The lists that were asked for: which, and what was chosen."""
    found = []
    for path in stand_in.paths():
        parts = urlsplit(path)
        given = {key: value for key, value in parse_qs(parts.query).items() if key.endswith("Selector")}
        if "/namespaces/" in parts.path:
            found.append((parts.path.rpartition("/")[2], given))
    return found


def test_two_lists_for_a_trainjob(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, SERVED), listing("demo"), listing("demo-node-0", "demo-ps-0"))
    found = read_between(api, "trainjob", ["demo"])
    assert found is not None
    assert [[each.metadata.name for each in tier] for tier in found.tiers] == [
        ["demo"],
        ["demo-node-0", "demo-ps-0"],
    ]
    assert asked(stand_in) == [
        ("jobsets", {"fieldSelector": ["metadata.name=demo"]}),
        ("jobs", {"labelSelector": ["jobset.sigs.k8s.io/jobset-name in (demo)"]}),
    ]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["b", "a"], "app in (a,b)"),
        ([f"job-{number}" for number in range(60)], "app"),
        (["a" * 70, "b"], "app"),  # no label can have such a name
    ],
)
def test_one_list_for_any_number_of_mpijobs(
    api: Api, stand_in: StandIn, names: list[str], chosen: str
) -> None:
    stand_in.answer_with(listing())
    assert read_between(api, "mpijob", names) == Between(tiers=((),))
    assert asked(stand_in) == [("jobs", {"labelSelector": [chosen]})]


def test_nothing_is_between_or_it_may_not_be_read(api: Api, stand_in: StandIn) -> None:
    assert read_between(api, "pytorchjob", ["demo"]) == Between()
    assert stand_in.seen == []
    stand_in.answer_with(refuses(403, "Forbidden", 'User "ann" cannot list resource "jobs"'))
    assert read_between(api, "mpijob", ["demo"]) is None
