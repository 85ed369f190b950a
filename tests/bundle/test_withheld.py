"""That nothing is read which need not be, and that a file which cannot be read is left to the survey."""

from __future__ import annotations

import os
from pathlib import Path

from echelon.agent.files.tree import PARTIAL
from echelon.bundle import withheld


def test_the_prefix_of_incomplete_files_is_the_agents() -> None:
    assert withheld.why_file(f"{PARTIAL}-x", Path("nowhere")) == "incomplete"


def test_what_is_not_there_is_no_secret() -> None:
    assert withheld.why_file("gone.pem", Path("nowhere/gone.pem")) is None
    assert withheld.why_file("gone.tar", Path("nowhere/gone.tar")) is None


def test_a_kubeconfig_is_a_secret_whatever_its_name(tmp_path: Path) -> None:
    text = "apiVersion: v1\nclusters: []\nkind: Config\n"
    with_key = f"users:\n- user:\n    client-certificate-data: {'x' * 6000}\n    client-key-data: LS0t\n"
    for name, content in (("kc", text), ("kube.yaml", with_key), ("my.conf", text), ("a.kubeconfig", "")):
        (tmp_path / name).write_text(content)
        assert withheld.why_file(name, tmp_path / name) == "secret", name
    os.mkfifo(tmp_path / "pipe")
    assert withheld.why_file("pipe", tmp_path / "pipe") is None
    (tmp_path / "map.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")
    assert withheld.why_file("map.yaml", tmp_path / "map.yaml") is None
