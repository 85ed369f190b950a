"""Kubernetes' own expansion of variables."""

from __future__ import annotations

import subprocess

import pytest

from echelon.kubeflow.expansion import fill, fill_command

KNOWN = {"A": "one", "B": "two words", "QUOTE": "it's"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("$(A) and $(B)", "one and two words"),
        ("$(NONE) $(date +%s) $((1+1)) ${A} $A", "$(NONE) $(date +%s) $((1+1)) ${A} $A"),
        ("$$(A) costs 5$", "$(A) costs 5$"),
        ("$$$(A)", "$one"),
    ],
)
def test_what_kubernetes_does(text: str, filled: str) -> None:
    assert fill(text, KNOWN) == filled


def test_variables_of_the_start_are_left_to_a_shell() -> None:
    command, args = fill_command(
        ["printf", "%s\n"],
        ["--rank=$(RANK)", "$(B)/$(QUOTE)", "$$(A)", "", "$(NONE)"],
        KNOWN,
        {"RANK"}.__contains__,
    )
    assert args == ()
    done = subprocess.run(
        command, check=True, env={"PATH": "/usr/bin:/bin", "RANK": "1 2"}, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:-1] == ["--rank=1 2", "two words/it's", "$(A)", "", "$(NONE)"]


def test_without_such_variables_there_is_no_shell() -> None:
    assert fill_command(["a", "$(A)"], ["$(NONE)"], KNOWN, {"RANK"}.__contains__) == (
        ("a", "one"),
        ("$(NONE)",),
    )
