"""The API client against a real API server: objects, rights, watches, and the kubeconfig that leads there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl, Object
from tests.conftest import wait_until
from tests.engines.kubernetes.real import access_of, config_map

from echelon.engines.kubernetes.client.api import ALL, AlreadyThere, Api, Conflict, NotThere
from echelon.engines.kubernetes.client.login.kubeconfig import load_access
from echelon.errors import Denied, Refused

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MEGABYTE = 1 << 20


@pytest.fixture
def api(namespace: Kubectl) -> Iterator[Api]:
    with Api(access_of(namespace)) as api:
        yield api


# Objects


@pytest.mark.core
def test_an_object_from_its_making_to_its_end(api: Api) -> None:
    assert api.find("ConfigMap", "one") is None
    made = api.create(config_map("one", a="1"))
    assert made["metadata"]["namespace"] == api.namespace
    assert api.get("ConfigMap", "one")["data"] == {"a": "1"}
    with pytest.raises(AlreadyThere):
        api.create(config_map("one"))
    api.delete("ConfigMap", "one", uid="another-uid")
    assert api.find("ConfigMap", "one") is not None
    api.delete("ConfigMap", "one", uid=made["metadata"]["uid"])
    api.delete("ConfigMap", "one")
    with pytest.raises(NotThere):
        api.get("ConfigMap", "one")


def test_a_dry_run_makes_nothing(api: Api) -> None:
    assert api.create(config_map("dry"), dry_run=True)["metadata"]["uid"]
    assert api.find("ConfigMap", "dry") is None


def test_changes(api: Api) -> None:
    made = api.create(config_map("one", a="1", b="2"))
    assert api.patch("ConfigMap", "one", {"data": {"a": None, "c": "3"}})["data"] == {"b": "2", "c": "3"}
    version = made["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        api.patch("ConfigMap", "one", {"metadata": {"resourceVersion": version}, "data": {"d": "4"}})
    with pytest.raises(NotThere):
        api.patch("ConfigMap", "other", {})


@pytest.mark.parametrize("kind", ["ConfigMap", "Job", "Pod"])
def test_no_other_object_of_the_name_is_changed(api: Api, kind: str) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none.invalid/none"}]}
    about: Object = {"kind": kind, "metadata": {"name": "one"}}
    made = {
        "ConfigMap": {"apiVersion": "v1", **about},
        "Job": {"apiVersion": "batch/v1", **about, "spec": {"suspend": True, "template": {"spec": spec}}},
        "Pod": {"apiVersion": "v1", **about, "spec": {**spec, "schedulerName": "nobody"}},
    }[kind]
    old = api.create(made)["metadata"]["uid"]
    noted = {"metadata": {"annotations": {"a": "1"}}}
    assert api.patch(kind, "one", noted, uid=old)["metadata"]["annotations"]["a"] == "1"
    if kind == "Pod":
        failed = {"status": {"phase": "Failed"}}
        assert api.patch(kind, "one", failed, subresource="status", uid=old)["status"]["phase"] == "Failed"
    api.delete(kind, "one", uid=old, grace=0)
    wait_until(lambda: api.find(kind, "one") is None, "it to go")
    with pytest.raises(NotThere):
        api.patch(kind, "one", noted, uid=old)
    api.create(made)
    with pytest.raises(NotThere):
        api.patch(kind, "one", noted, uid=old)
    if kind == "Pod":
        with pytest.raises(NotThere):
            api.patch(kind, "one", {"status": {"phase": "Failed"}}, subresource="status", uid=old)
    assert "a" not in (api.get(kind, "one")["metadata"].get("annotations") or {})


def test_lists_of_several_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.client.api.PAGE", 3)
    for number in range(10):
        api.create(config_map(f"c{number}"))
    api.create({**config_map("other"), "metadata": {"name": "other"}})
    listing = api.list("ConfigMap", selector="test=yes")
    assert [item["metadata"]["name"] for item in listing.items] == [f"c{number}" for number in range(10)]
    assert {item["kind"] for item in listing.items} == {"ConfigMap"}
    assert int(listing.version) > 0
    assert len(api.list("ConfigMap", fields="metadata.name=c3").items) == 1
    assert len(api.list("ConfigMap", namespace=ALL, selector="test=yes").items) >= 10


def test_what_the_server_does_not_take(api: Api) -> None:
    with pytest.raises(Refused, match="Invalid value"):
        api.create(config_map("Not_A_Name"))
    with pytest.raises(Refused) as caught:
        api.create(config_map("huge", a="x" * 4 * MEGABYTE))
    assert "too long" in caught.value.message or "larger than" in caught.value.message
    with pytest.raises(NotThere) as missing:
        api.create({**config_map("one"), "metadata": {"name": "one", "namespace": "no-such-namespace"}})
    assert "kubectl create namespace no-such-namespace" in missing.value.hint


def test_a_quota_is_a_refusal_and_not_a_missing_right(api: Api) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    api.create(quota | {"spec": {"hard": {"count/secrets": "0"}}})
    refused: list[Refused] = []

    def is_refused() -> bool:  # the API server counts only a while after the quota says so
        try:
            api.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "s-"}})
        except Refused as error:
            refused.append(error)
        return bool(refused)

    wait_until(is_refused, "the quota to count")
    assert "exceeded quota" in refused[0].message
    assert "resourcequota" in refused[0].hint


def test_kinds_that_are_not_in_the_table(api: Api) -> None:
    flows = api.list("flowschemas.v1.flowcontrol.apiserver.k8s.io")  # cluster-wide, which we were not told
    assert flows.items
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r"},
        "rules": [],
    }
    api.create(role)
    assert api.get("roles.v1.rbac.authorization.k8s.io", "r")["kind"] == "Role"
    with pytest.raises(NotThere):
        api.list("gadgets.v1.things.example")


def test_every_kind_of_the_table_is_served(api: Api) -> None:
    from echelon.engines.kubernetes.client.kinds import KINDS

    for name, kind in KINDS.items():
        # Kubeflow's are served where its operator is, and looked up before. Reviews are no objects.
        if not name.endswith("Review") and not kind.group.endswith("kubeflow.org"):
            api.list(name, namespace=ALL)


def test_other_paths(api: Api) -> None:
    assert api.raw("/version")["major"] == "1"


# Rights


@pytest.mark.core
def test_somebody_with_few_rights(user: Callable[..., Kubectl], namespace: Kubectl, api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    theirs = Api(access_of(user("ann", rules)))
    assert theirs.may("list", "ConfigMap")
    assert not theirs.may("create", "ConfigMap")
    assert not theirs.may("create", "Pod", subresource="exec")
    assert not theirs.may("list", "ConfigMap", namespace=ALL)
    assert api.may("create", "Pod", subresource="exec")
    assert theirs.list("ConfigMap").items
    with pytest.raises(Denied) as caught:
        theirs.create(config_map("one"))
    who = f"system:serviceaccount:{namespace.namespace}:ann"
    assert (
        caught.value.message
        == f"you (user {who}) may not create configmaps in namespace {namespace.namespace}"
    )
    for verb, deed in (
        ("delete", lambda: theirs.delete("ConfigMap", "one")),
        ("list", lambda: theirs.list("Node")),
    ):
        with pytest.raises(Denied, match=f"may not {verb}"):
            deed()
    with pytest.raises(Denied, match="may not watch pods"):
        list(theirs.watch("Pod", dict, version="0", timeout=5))
    with pytest.raises(Denied, match="may not get pods/log"):
        list(theirs.logs("p", container="c"))
    with pytest.raises(Denied, match="pods/exec"):
        theirs.exec("p", ["true"], container="c")


def test_what_an_administrator_is_told_to_type_helps(user: Callable[..., Kubectl], cluster: Target) -> None:
    theirs = Api(access_of(user("bob", [])))
    with pytest.raises(Denied) as caught:
        theirs.create(config_map("one"))
    for command in caught.value.hint.partition(": ")[2].split(" && "):
        cluster.kubectl(*command.split()[1:])
    wait_until(lambda: theirs.may("create", "ConfigMap"), "the right to be known")
    theirs.create(config_map("one"))


def test_a_token_that_nobody_knows(namespace: Kubectl, api: Api) -> None:
    from dataclasses import replace

    from echelon.engines.kubernetes.client.login.access import Login

    with pytest.raises(Denied, match="does not accept you"):
        Api(replace(api.access, login=Login(token="nonsense"))).list("Pod")


# Watching


@pytest.mark.core
def test_a_watch_sees_what_happens(api: Api) -> None:
    version = api.list("ConfigMap").version
    with api.watch("ConfigMap", dict, selector="test=yes", version=version, timeout=60) as watch:
        api.create(config_map("one"))
        assert next(watch)[0] == "ADDED"
        api.patch("ConfigMap", "one", {"data": {"a": "1"}})
        kind, _, changed = next(watch)
        assert changed is not None
        assert (kind, changed["data"]) == ("MODIFIED", {"a": "1"})
        api.delete("ConfigMap", "one")
        assert next(watch)[0] == "DELETED"


def test_a_watch_ends_at_its_time(api: Api) -> None:
    version = api.list("ConfigMap").version
    seen = [change[0] for change in api.watch("ConfigMap", dict, version=version, timeout=1)]
    assert seen in ([], ["BOOKMARK"])


# kubectl, the oracle


def test_kubeconfigs_mean_what_they_mean_to_kubectl(cluster: Target, tmp_path: Path) -> None:
    """Several files with overlapping entries: the same server, user and namespace for every context."""
    import itertools
    import json
    import subprocess

    import yaml

    def document(names: str, current: str, place: str) -> object:
        return {
            "clusters": [{"name": n, "cluster": {"server": f"https://{n}.{place}"}} for n in names],
            "users": [{"name": n, "user": {"token": f"{n} of {place}"}} for n in names],
            "contexts": [
                {
                    "name": n,
                    "context": {"cluster": n, "user": n} | ({"namespace": place} if n in "bd" else {}),
                }
                for n in names
            ],
            "current-context": current,
        }

    for place, names, current in (("one", "ab", ""), ("two", "bc", "c"), ("three", "acd", "a")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "config").write_text(yaml.safe_dump(document(names, current, place)))
    for order in itertools.permutations(["one", "two", "three", "gone"], 3):
        variables = {"KUBECONFIG": ":".join(str(tmp_path / place / "config") for place in order)}
        words = [*cluster.kubectl.command()[:2], "config", "view", "--minify", "--raw", "-o", "json"]
        done = subprocess.run(words, env=os.environ | variables, capture_output=True, text=True, check=True)
        theirs = json.loads(done.stdout)
        ours = load_access(environment=variables)
        context = theirs["contexts"][0]
        assert ours.context == theirs["current-context"] == context["name"]
        assert ours.namespace == context["context"].get("namespace", "default")
        assert ours.server == theirs["clusters"][0]["cluster"]["server"]
        assert ours.login.token == theirs["users"][0]["user"]["token"]
