"""Names and kinds as paths: no name leads anywhere else, no kind is looked up twice."""

from __future__ import annotations

import pytest
from tests.engines.kubernetes.stand_in import POD, StandIn, says

from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.errors import Refused


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_a_name_never_becomes_another_path(api: Api, stand_in: StandIn, name: str) -> None:
    with pytest.raises(Refused, match="is not a name of a Pod"):
        api.delete("Pod", name)
    if name:
        with pytest.raises(Refused, match="is not a namespace"):
            api.delete("Pod", "p", namespace=name)
    assert stand_in.seen == []


def test_odd_names_are_quoted(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, POD))
    api.get("Pod", "a?b#c%2e")
    assert stand_in.seen[0].path == "/api/v1/namespaces/team/pods/a%3Fb%23c%252e"


def test_kinds_that_are_not_in_the_table_are_looked_up_once(api: Api, stand_in: StandIn) -> None:
    served = [
        {"name": "widgets/status", "kind": "Widget", "namespaced": False},
        {"name": "widgets", "kind": "Widget", "namespaced": False},
    ]
    stand_in.answer_with(
        says(200, {"resources": served}), says(200, {"items": [], "metadata": {"name": "w"}})
    )
    api.list("widgets.v1alpha1.things.example")
    api.list("widgets.v1alpha1.things.example")
    api.create({"apiVersion": "things.example/v1alpha1", "kind": "Widget", "metadata": {"name": "w"}})
    widgets = "/apis/things.example/v1alpha1/widgets"
    group = "/apis/things.example/v1alpha1"
    paths = [path.partition("?")[0] for path in stand_in.paths()]
    assert paths == [group, widgets, widgets, widgets]


def test_a_kind_that_nobody_defined(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, {"resources": []}))
    with pytest.raises(NotThere, match="no gadgets of things"):
        api.list("gadgets.v1.things.example")
    with pytest.raises(Refused, match="no kind of object is called 'Gadget'"):
        api.list("Gadget")
