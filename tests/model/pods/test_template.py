"""A pod template of the user's, under echelon's own pod."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.errors import InvalidJob
from echelon.model.pods.template import check_template, merge_under

OURS: dict[str, Any] = {
    "metadata": {"labels": {"run": "fm"}},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": "worker",
                "image": "ours",
                "env": [{"name": "A", "value": "ours"}],
                "volumeMounts": [{"name": "work", "mountPath": "/work"}],
            }
        ],
        "volumes": [{"name": "work", "emptyDir": {}}],
    },
}


def test_nothing_changes_nothing() -> None:
    assert merge_under({}, OURS) == OURS


def test_what_echelon_does_not_say_goes_through_untouched() -> None:
    theirs: dict[str, Any] = {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"nodeSelector": {"pool": "a"}, "hostNetwork": True, "initContainers": [{"name": "first"}]},
    }
    merged = merge_under(theirs, OURS)
    assert merged["metadata"] == {"labels": {"run": "fm"}, "annotations": {"a": "b"}}
    assert merged["spec"] == {**OURS["spec"], **theirs["spec"]}


def test_what_both_say_is_ours() -> None:
    theirs: dict[str, Any] = {
        "metadata": {"labels": {"run": "theirs", "team": "x"}},
        "spec": {
            "restartPolicy": "Always",
            "securityContext": {
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p"},
                "runAsUser": 7,
            },
        },
    }
    merged = merge_under(theirs, OURS)
    assert merged["metadata"]["labels"] == {"run": "fm", "team": "x"}
    assert merged["spec"]["restartPolicy"] == "Never"
    assert merged["spec"]["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 7,
    }, "half of one profile and half of another would be none"


def test_lists_are_merged_by_name() -> None:
    theirs: dict[str, Any] = {
        "spec": {
            "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}],
            "volumes": [{"name": "work", "hostPath": {"path": "/"}}, {"name": "data", "emptyDir": {}}],
            "containers": [
                {"name": "beside", "image": "theirs"},
                {
                    "name": "worker",
                    "env": [{"name": "A", "valueFrom": {}}, {"name": "B", "value": "theirs"}],
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"},
                        {"name": "data", "mountPath": "/more"},
                        {"name": "data", "mountPath": "/work"},
                    ],
                },
            ],
        }
    }
    spec = merge_under(theirs, OURS)["spec"]
    assert [each["key"] for each in spec["tolerations"]] == ["gpu", "spot"]
    assert spec["volumes"] == [{"name": "work", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]
    worker, beside = spec["containers"]
    assert (worker["image"], beside) == ("ours", {"name": "beside", "image": "theirs"})
    assert worker["env"] == [{"name": "A", "value": "ours"}, {"name": "B", "value": "theirs"}]
    assert [each["mountPath"] for each in worker["volumeMounts"]] == ["/work", "/data", "/more"]


def test_neither_side_is_changed_by_merging() -> None:
    theirs = {"spec": {"containers": [{"name": "worker", "tty": True}]}}
    merged = merge_under(theirs, OURS)
    assert merged["spec"]["containers"][0]["tty"] is True
    assert "tty" not in OURS["spec"]["containers"][0]
    assert theirs == {"spec": {"containers": [{"name": "worker", "tty": True}]}}


@pytest.mark.parametrize(
    ("template", "value", "hint"),
    [
        ({"kind": "Pod"}, "kind", "metadata: {...} and spec: {...}"),
        ({"spec": []}, "spec", "spec: {...}"),
        ({"spec": {"containers": {}}}, "containers", "has a name"),
        ({"spec": {"containers": [{"image": "x"}]}}, "containers", "'worker' is the ranks'"),
        ({"spec": {"containers": [{"name": "worker", "image": "x"}]}}, "worker: image", "image: of the role"),
        ({"spec": {"containers": [{"name": "worker", "command": []}]}}, "worker: command", "command:"),
        ({"spec": {"containers": [{"name": "worker", "resources": {}}]}}, "worker: resources", "gpus:"),
        ({"spec": {"affinity": {"nodeAffinity": {}}}}, "nodeAffinity", "nodeSelector"),
    ],
)
def test_what_would_be_lost_is_refused(template: dict[str, Any], value: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        check_template("role ps: template", template)
    assert (caught.value.field, caught.value.value) == ("role ps: template", value)
    assert hint in caught.value.hint


def test_containers_beside_the_ranks_may_say_anything() -> None:
    check_template("template", {"spec": {"containers": [{"name": "beside", "image": "x", "resources": {}}]}})
    check_template("template", {"spec": {"affinity": {"podAntiAffinity": {}}}})
