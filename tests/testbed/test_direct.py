"""Requests without kubectl: which words they understand, and that their answers are kubectl's own."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest
from testbed.direct import login, understand, understand_object
from testbed.kubectl import Kubectl, Refused
from testbed.patience import pause_after

from testbed import direct


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("pytorchjobs",),
        ("pods,pytorchjobs",),
        ("pod/one",),
        ("pods", "one", "two"),
        ("pods", "-o", "name"),
        ("pod", "one", "-l", "a=b"),
        ("pods,jobs", "one"),
    ],
)
def test_what_is_left_to_kubectl(words: tuple[str, ...]) -> None:
    assert understand(words) is None


def test_what_is_understood() -> None:
    found = understand(["jobs,po", "-l", "a=b,c", "-A"])
    assert found
    assert [kind.name for kind in found.kinds] == ["Job", "Pod"]
    assert (found.name, found.everywhere, found.parameters) == ("", True, (("labelSelector", "a=b,c"),))
    found = understand(["pvc", "data"])
    assert found
    assert (found.kinds[0].words[0], found.name) == ("persistentvolumeclaims", "data")
    assert understand_object({"apiVersion": "batch/v1", "kind": "Job"}) is not None
    assert understand_object({"apiVersion": "v1", "kind": "Job"}) is None


def test_a_login_that_takes_kubectl(tmp_path: Path) -> None:
    view = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {"command": "login"}}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(view))
    assert login(file) is None
    assert login(tmp_path / "gone-with-its-cluster") is None


def test_a_silent_server_is_asked_again_and_told_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    troubles: dict[str, Exception] = {"silent": TimeoutError(), "away": ConnectionRefusedError()}

    def ask_first(_who: object, method: str, path: str, _body: object) -> direct.Object:
        asked.append(method)
        if len(asked) == 1:
            raise troubles[path]
        return {}

    monkeypatch.setattr(direct, "_ask", ask_first)
    who = direct.Login(host="", port=0, context=ssl.create_default_context(), headers={}, namespace="")
    assert direct._call(who, "GET", "silent") == {}
    for method, path in (("GET", "away"), ("POST", "silent")):
        asked.clear()
        with pytest.raises(direct.Unanswered):
            direct._call(who, method, path)
        assert asked == [method]


def test_a_condition_that_takes_long_is_looked_at_less_often() -> None:
    assert [pause_after(took) for took in (0.0, 0.4, 30.0)] == [0.02, 0.4, 1.0]
    assert pause_after(0.0, least=0.1) == 0.1


@pytest.mark.cluster
def test_the_answers_are_kubectls(namespace: Kubectl) -> None:
    about = {"name": "one", "labels": {"a": "b"}}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"key": "value"}}
    namespace.create(made, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "two"}})
    for words in (["cm", "one"], ["configmaps", "-l", "a=b"], ["secrets,configmaps"], ["namespaces"]):
        # Objects that change by themselves would make this a race.
        theirs = json.loads(namespace("get", *words, "-o", "json"))
        mine = namespace.get(*words)
        if words == ["namespaces"]:
            names = [{item["metadata"]["name"] for item in each["items"]} for each in (mine, theirs)]
            assert namespace.namespace in names[0] & names[1]
        else:
            assert mine.get("items", mine) == theirs.get("items", theirs)
    assert namespace.find("configmap", "none") is None
    with pytest.raises(Refused, match="not found"):
        namespace.get("configmap", "none")
    with pytest.raises(Refused, match="exists"):
        namespace.create(made)
    with pytest.raises(Refused, match="unknown field"):
        namespace.create({**made, "strange": 1})
