"""Flags made from the settings: sections of the help, and words that become names and values."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from echelon.cli.options import SectionedCommand, setting_options
from echelon.errors import InvalidJob
from echelon.model.settings import ON_KUBERNETES


def command() -> SectionedCommand:
    params: list[click.Parameter] = [*setting_options(everywhere=False), *setting_options(everywhere=True)]
    return SectionedCommand("run", params=params, callback=lambda **said: said)


def parse(*words: str) -> dict[str, object]:
    said: dict[str, object] = command().make_context("run", list(words)).params
    return {name: value for name, value in said.items() if value not in (None, ())}


def test_what_is_for_pods_stands_in_a_section_of_its_own_with_its_defaults() -> None:
    text = CliRunner().invoke(command(), ["--help"], terminal_width=200).output
    ordinary, heading, pods = text.partition(f"\n{ON_KUBERNETES}:\n")
    assert heading
    assert "--workers" in ordinary
    assert "--help" in ordinary
    assert "--on [local|k8s]" in ordinary
    flags = set(re.findall(r"^  (--[a-z-]+)", pods, re.MULTILINE))
    assert flags == {
        "--image", "--pull", "--pull-secret", "--mount", "--node-selector", "--toleration",
        "--service-account", "--priority-class", "--shm", "--code", "--pip", "--requirements", "--output",
        "--linger", "--ttl", "--collect", "--context", "--namespace",
    }  # fmt: skip
    for default in ("default 5m", "default 7d", "default 10Gi", "default missing"):
        assert default in pods
    assert "KIND:SOURCE:/PATH[:ro]" in pods


def test_flags_that_come_several_times() -> None:
    assert parse("--mount", "pvc:a:/a", "--mount=emptydir:/b", "--pip", "x", "--pip", "y") == {
        "mount": ("pvc:a:/a", "emptydir:/b"),
        "pip": ("x", "y"),
    }


def test_labels_of_nodes_are_names_and_values() -> None:
    assert parse("--node-selector", "a.b/c=d=e", "--node-selector", "x=") == {
        "node_selector": {"a.b/c": "d=e", "x": ""}
    }
    assert parse() == {}


@pytest.mark.parametrize("text", ["gpu", "=x", ""])
def test_a_label_without_a_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="is not KEY=VALUE") as caught:
        parse("--node-selector", text)
    assert caught.value.field == "node_selector"
    assert "--show-labels" in caught.value.hint
