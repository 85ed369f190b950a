"""The administrator's rules: what a ConfigMap says, and what it cannot say."""

from __future__ import annotations

import pytest

from echelon.engines.kubernetes.dispatch.rules import read_rules
from echelon.engines.kubernetes.install.manifests import RULES
from echelon.errors import InvalidJob
from echelon.model.queue import Limits, Rules


def configmap(text: str) -> dict[str, object]:
    return {"data": {"queue.yaml": text}}


def test_without_rules_the_usual_ones_hold() -> None:
    assert read_rules(None) == read_rules({}) == read_rules(configmap("")) == Rules()


def test_a_queue_in_which_nobody_overtakes() -> None:
    assert (
        read_rules(configmap("overtake: 0s")).overtake == read_rules(configmap("overtake: 0")).overtake == 0
    )


def test_what_install_writes_is_the_usual() -> None:
    assert read_rules(configmap(RULES)) == Rules()
    opened = RULES.replace("# user", "user").replace("# namespace", "namespace")
    assert read_rules(configmap(opened)).limits == Limits(
        user=16, namespace=64, users={"ann": 32}, namespaces={"team-a": 128}
    )


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("overtake: soon", "overtake"),
        ("user: many", "user"),
        ("user: -1", "user"),
        ("users: 4", "users"),
        ("users: {ann: true}", "users ann"),
        ("limit: 4", "limit"),
        ("- 1", "queue.yaml"),
        ("a: b: c", "queue.yaml"),
    ],
)
def test_a_line_that_cannot_be_is_named(text: str, field: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        read_rules(configmap(text))
    assert refused.value.field == field
    assert "echelon-queue" in refused.value.hint or field == "overtake"
