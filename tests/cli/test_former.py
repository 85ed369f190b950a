"""Old names of commands and flags: accepted, hidden, and answered with the new one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["ps", "--everybody"], ["ps", "--all-users"]),
        (["notebook", "down"], ["jupyter", "down"]),
        (["notebook", "open", "--name", "me"], ["jupyter", "open", "--name", "me"]),
    ],
)
def test_an_old_name_does_the_same_and_says_the_new_one(
    call: Call, old: list[str], new: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    before, after = call(*old), call(*new)
    assert (before.returncode, before.stdout) == (after.returncode, after.stdout)
    warning, *rest = before.stderr.splitlines()
    assert "is now" in warning
    assert rest == after.stderr.splitlines()
    assert new[1] in warning or f"echelon {new[0]} {new[1]}" in warning


def test_standard_output_of_an_old_name_is_data_alone(call: Call) -> None:
    assert json.loads(call("ps", "--everybody", "-o", "json").stdout) == []


@pytest.mark.parametrize("words", [["ps", "--help"], ["notebook", "--help"], ["run", "--help-all"]])
def test_old_names_are_in_no_help(call: Call, words: list[str]) -> None:
    shown = call(*words).stdout
    for old in ("--everybody", "  up ", "  open ", "  down "):
        assert old not in shown
