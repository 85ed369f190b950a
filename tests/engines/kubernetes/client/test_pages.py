"""Lists that fill several pages, as dictionaries and as shapes; and one that grows too old in the middle."""

from __future__ import annotations

import msgspec
import pytest
from tests.engines.kubernetes.stand_in import Answer, StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api, Gone
from echelon.errors import Unreachable

TOO_OLD = refuses(410, "Expired", "too old")


class About(msgspec.Struct):
    name: str


class Named(msgspec.Struct):
    metadata: About


def page(names: str, mark: str = "") -> Answer:
    items = [{"metadata": {"name": name}} for name in names]
    about = {"resourceVersion": "7", "continue": mark}
    return says(200, {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": items})


def names(api: Api) -> str:
    return "".join(item["metadata"]["name"] for item in api.list("Pod").items)


def shaped(api: Api) -> str:
    return "".join(item.metadata.name for item in api.list_shapes("Pod", Named))


def test_pages_are_put_together(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(page("ab", "x"), page("cd", "y"), page("e"))
    listing = api.list("Pod", selector="a=b", fields="c=d")
    assert "".join(item["metadata"]["name"] for item in listing.items) == "abcde"
    assert {(item["kind"], item["apiVersion"]) for item in listing.items} == {("Pod", "v1")}
    assert listing.version == "7"
    assert "labelSelector=a%3Db&fieldSelector=c%3Dd&limit=500&continue=x" in stand_in.paths()[1]


def test_shapes_are_put_together(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(page("ab", "x"), page("", "y"), page("c"))
    assert [item.metadata.name for item in api.list_shapes("Pod", Named, selector="a=b")] == ["a", "b", "c"]
    assert "labelSelector=a%3Db&limit=100&continue=x" in stand_in.paths()[1]


@pytest.mark.parametrize("read", [names, shaped])
def test_a_list_whose_rest_is_gone_is_read_in_one_piece(api: Api, stand_in: StandIn, read: object) -> None:
    stand_in.answer_with(page("ab", "x"), TOO_OLD, page("abc"))
    assert read(api) == "abc"  # type: ignore[operator]
    assert "limit" not in stand_in.paths()[-1]
    stand_in.answer_with(TOO_OLD)
    with pytest.raises(Gone):
        read(api)  # type: ignore[operator]


@pytest.mark.parametrize("read", [names, shaped])
def test_a_page_that_no_api_server_wrote(api: Api, stand_in: StandIn, read: object) -> None:
    stand_in.answer_with(says(200, b"<html>please log in</html>"))
    with pytest.raises(Unreachable, match="does not answer as an API server does") as caught:
        read(api)  # type: ignore[operator]
    assert "login page" in caught.value.hint
