"""What the engine says of itself without a word to the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.engines.kubernetes.client.login.test_kubeconfig import config

from echelon.engines.choose import CLUSTER, choose_engine
from echelon.errors import Unavailable
from echelon.model.engine.traits import Where


@pytest.mark.parametrize("watched", [False, True])
def test_where_it_is_stays_when_kubectl_is_turned_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config("red", "blue", current="blue", namespace="team")))
    monkeypatch.setenv("KUBECONFIG", str(path))
    engine = choose_engine(CLUSTER, watched=watched)
    assert engine.where == Where(context="blue", namespace="team")
    path.write_text(yaml.safe_dump(config("red", "blue", current="red")))
    assert engine.where == Where(context="blue", namespace="team")
    assert choose_engine(CLUSTER, watched=watched).where == Where(context="red", namespace="default")
    assert choose_engine(CLUSTER, namespace="mine", watched=watched).where == Where("red", "mine")


def test_without_a_kubeconfig_it_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    engine = choose_engine(CLUSTER)
    with pytest.raises(Unavailable):
        _ = engine.where
