"""Old names of commands and flags: accepted, hidden, and answered with the new one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from echelon.cli import main
from echelon.errors import InvalidJob
from echelon.jobfile import settings_from
from echelon.model.former import FORMER, HIDDEN, FormerName
from echelon.model.settings import NAMES, Settings

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


@pytest.mark.parametrize(
    ("flags", "now"),
    [
        (["--on", "k8s", "--queue", "team"], {"local_queue": "team"}),
        (["--name", "a", "--resume"], {"reuse_results": True}),
        (["--total-gpus", "2", "--cpus-per-gpu=4"], {"cpus": "4/gpu"}),
        (["--total-gpus", "2", "--memory-per-gpu", "1Gi"], {"memory": "1Gi/gpu"}),
    ],
)
def test_an_old_flag_is_the_setting_of_now(
    flags: list[str], now: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Settings] = []

    def gather(given: Settings, *_more: object) -> Settings:
        seen.append(given)
        raise InvalidJob("x", 1, "is enough", hint="")

    monkeypatch.setattr("echelon.preparation.sources.gather", gather)
    with pytest.warns(FormerName, match=f"is now {next(iter(now))}"):
        assert main.call(["run", *flags, "train.py"]) == InvalidJob.exit_code
    assert {name: getattr(seen[0], name) for name in now} == now


def test_an_old_flag_is_answered_in_one_line(cli: Call) -> None:
    done = cli("run", "--resume", "--dry-run", "missing.py")
    assert done.stderr.splitlines()[0] == (
        "echelon: resume is now reuse_results; the old name works until the next release"
    )
    assert "FormerName" not in done.stderr


def test_old_keys_and_keywords_are_the_settings_of_now() -> None:
    with pytest.warns(FormerName):
        assert settings_from({"queue": "team"}, source="a test") == Settings(local_queue="team")
    with pytest.warns(FormerName, match="cpus: 4/gpu"):
        assert settings_from({"cpus-per-gpu": 4}, source="a test") == Settings(cpus="4/gpu")
    with pytest.warns(FormerName), pytest.raises(InvalidJob, match="is given twice"):
        settings_from({"queue": "a", "local_queue": "b"}, source="a test")
    with pytest.warns(FormerName, match="linger is now keep TIME"):
        assert settings_from({"linger": "1h"}, source="a test") == Settings(linger="1h")
    assert settings_from({"local_queue": "team", "queue": None}, source="a test") == Settings(
        local_queue="team"
    )
    assert set(FORMER).isdisjoint(NAMES)
    assert set(HIDDEN) < set(NAMES)
    assert {now for now, _ in FORMER.values()} <= set(NAMES)


@pytest.mark.parametrize("words", [["ps", "--help"], ["notebook", "--help"], ["run", "--help-all"]])
def test_old_names_are_in_no_help(call: Call, words: list[str]) -> None:
    shown = call(*words).stdout
    for old in ("--everybody", "  up ", "  open ", "  down ", "--queue ", "--cpus-per-gpu", "--resume"):
        assert old not in shown
