"""That the API server in memory answers as a real one does: the same requests to both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from testbed.kubectl import Kubectl, Object
from tests.conftest import PATIENCE, wait_until
from tests.engines.kubernetes.api_server import ApiServer

from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Conflict, NotThere
from echelon.engines.kubernetes.client.login.kubeconfig import load_access
from echelon.errors import Refused

MINE = "team=a"


@pytest.fixture(
    params=["memory", pytest.param("cluster", marks=[pytest.mark.cluster, pytest.mark.slow])],
)
def api(request: pytest.FixtureRequest) -> Api:
    if request.param == "memory":
        return ApiServer().api
    namespace: Kubectl = request.getfixturevalue("namespace")
    environment = {"KUBECONFIG": str(namespace.kubeconfig)}
    return Api(load_access(namespace=namespace.namespace, environment=environment))


def config_map(name: str, owner: Object | None = None, **labels: str) -> Object:
    about: Object = {"name": name, "labels": {"team": "a", **labels}}
    if owner is not None:
        own = {key: owner["metadata"][key] for key in ("name", "uid")}
        about["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", **own}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"key": "value"}}


def names_of(api: Api, selector: str = MINE, fields: str = "") -> list[str]:
    found = api.list("ConfigMap", selector=selector, fields=fields).items
    return sorted(each["metadata"]["name"] for each in found)


def test_what_is_made_is_found_once(api: Api) -> None:
    made = api.create(config_map("a"))
    assert made["metadata"]["uid"]
    assert made["metadata"]["resourceVersion"]
    with pytest.raises(AlreadyThere):
        api.create(config_map("a"))
    assert api.get("ConfigMap", "a") == made
    assert api.exists("ConfigMap", "a")
    assert api.find("ConfigMap", "b") is None
    with pytest.raises(NotThere):
        api.get("ConfigMap", "b")
    api.create(config_map("b"), dry_run=True)
    assert names_of(api) == ["a"]


def test_selectors_and_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.client.api.PAGE", 2)
    for name, part in (("a", "x"), ("b", "y"), ("c", "z"), ("d", "x"), ("e", "x")):
        api.create(config_map(name, part=part))
    assert names_of(api) == ["a", "b", "c", "d", "e"]
    assert names_of(api, "team=a,part=x") == ["a", "d", "e"]
    assert names_of(api, "part in (y,z)") == ["b", "c"]
    assert names_of(api, "other=x") == names_of(api, "other in (x)") == []
    assert names_of(api, fields="metadata.name=b") == ["b"]
    assert names_of(api, fields="metadata.name!=b") == ["a", "c", "d", "e"]
    with pytest.raises(Refused, match="unable to parse"):
        names_of(api, "part=(")


def test_patches_and_their_preconditions(api: Api) -> None:
    made = api.create(config_map("a", part="x"))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    change: Object = {"data": {"key": None, "more": "1"}, "metadata": {"labels": {"part": "y"}}}
    new = api.patch("ConfigMap", "a", change, uid=uid)
    assert (new["data"], new["metadata"]["labels"]) == ({"more": "1"}, {"team": "a", "part": "y"})
    assert (new["metadata"]["uid"], new["metadata"]["resourceVersion"] != version) == (uid, True)
    with pytest.raises(Conflict):
        api.patch("ConfigMap", "a", {"metadata": {"resourceVersion": version}, "data": {"more": "2"}})
    with pytest.raises(NotThere, match="another one has its name"):
        api.patch("ConfigMap", "a", {"data": {"more": "2"}}, uid="11111111-1111-1111-1111-111111111111")
    with pytest.raises(NotThere):
        api.patch("ConfigMap", "b", {"data": {}})
    assert api.get("ConfigMap", "a")["data"] == {"more": "1"}


def test_deletions_take_along_what_belongs_to_the_object(api: Api) -> None:
    owner = api.create(config_map("owner"))
    other = api.create(config_map("other"))
    api.create(config_map("own", owner))
    api.create(config_map("others", other))
    api.delete("ConfigMap", "owner", uid="11111111-1111-1111-1111-111111111111")
    assert names_of(api) == ["other", "others", "own", "owner"]
    api.delete("ConfigMap", "owner", uid=owner["metadata"]["uid"])
    wait_until(lambda: names_of(api) == ["other", "others"], "what belonged to it to go")
    api.delete("ConfigMap", "owner")


def test_a_watch_tells_what_has_changed_since_a_list(api: Api) -> None:
    first = api.create(config_map("a"))
    version = api.list("ConfigMap", selector=MINE).version
    api.create(config_map("b"))
    api.create({**config_map("c"), "metadata": {"name": "c"}})  # not selected
    api.patch("ConfigMap", "a", {"data": {"key": "new"}}, uid=first["metadata"]["uid"])
    api.delete("ConfigMap", "b")
    wanted = [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    seen: list[tuple[str, str]] = []
    with api.watch("ConfigMap", dict, selector=MINE, version=version, timeout=PATIENCE) as stream:
        for what, _, obj in stream:
            if obj is not None:
                seen.append((what, obj["metadata"]["name"]))
            if len(seen) == len(wanted):
                break
    assert seen == wanted


@pytest.mark.parametrize(
    "ask", [lambda api: api.may("create", "Job"), lambda api: api.raw("/version")["major"]]
)
def test_what_everybody_is_told(api: Api, ask: Callable[[Api], object]) -> None:
    assert ask(api) in (True, "1")
