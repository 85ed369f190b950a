"""Which of several sources speaks."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.job import FRAMEWORKS
from echelon.model.settings import NAMES, RoleSettings, Settings, merge

SMALL = st.integers(1, 3)
NAME = st.sampled_from(["a", "b", "c"])
ROLES = SMALL | st.builds(
    RoleSettings,
    workers=st.none() | SMALL,
    gpus=st.none() | SMALL,
    memory=st.none() | SMALL,
    command=st.none() | st.lists(NAME, max_size=2).map(tuple),
    args=st.none() | st.lists(NAME, max_size=2).map(tuple),
    env=st.none() | st.dictionaries(NAME, SMALL, max_size=2),
    template=st.none() | st.dictionaries(NAME, st.dictionaries(NAME, SMALL, max_size=2), max_size=2),
)
CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "script": NAME,
    "module": NAME,
    "command": st.lists(NAME, max_size=2).map(tuple),
    "args": st.lists(NAME, max_size=2).map(tuple),
    "workers": SMALL,
    "reuse_results": st.booleans(),
    "env": st.dictionaries(NAME, SMALL, max_size=3),
    "resource": st.dictionaries(NAME, SMALL, max_size=3),
    "roles": st.dictionaries(NAME, ROLES, max_size=3),
    "node_selector": st.dictionaries(NAME, SMALL, max_size=3),
    "mount": st.lists(NAME, max_size=2).map(tuple),
}
SAID = st.fixed_dictionaries({}, optional=CHOICES).map(lambda said: Settings(**said))
WHAT = ("script", "module", "command")


@settings(deadline=None)
@given(SAID, SAID, SAID)
def test_it_does_not_matter_which_two_are_merged_first(
    flags: Settings, file: Settings, table: Settings
) -> None:
    assert merge(flags, merge(file, table)) == merge(merge(flags, file), table)


@settings(deadline=None)
@given(SAID)
def test_silence_changes_nothing(said: Settings) -> None:
    assert merge(said, Settings()) == merge(Settings(), said) == said
    assert merge(said, said) == said


@settings(deadline=None)
@given(SAID, SAID)
def test_the_strong_one_wins_and_the_weak_one_fills_in(strong: Settings, weak: Settings) -> None:
    merged = merge(strong, weak)
    says_what = any(getattr(strong, name) is not None for name in WHAT)
    for name in NAMES:
        mine, theirs, result = (getattr(said, name) for said in (strong, weak, merged))
        if name in ("env", "resource", "roles", "node_selector"):
            assert set(result or {}) == set(mine or {}) | set(theirs or {})
            if name != "roles":
                assert (result or {}).items() >= (mine or {}).items()
        elif mine is not None:
            assert result == mine
        else:
            assert result == (None if says_what and name in (*WHAT, "args") else theirs)


def test_another_script_does_not_get_the_files_arguments() -> None:
    file = Settings(script="a.py", args=("--epochs", "3"), workers=2)
    assert merge(Settings(script="b.py"), file) == Settings(script="b.py", workers=2)
    assert merge(Settings(args=("x",)), file) == replace(file, args=("x",))


def test_a_role_adds_up_field_by_field() -> None:
    written = Settings(roles={"ps": RoleSettings(workers=1, memory="8Gi"), "chief": 1})
    assert merge(Settings(roles={"ps": 4}), written).roles == {
        "ps": RoleSettings(workers=4, memory="8Gi"),
        "chief": 1,
    }
    assert merge(Settings(roles={"ps": RoleSettings(gpus=1)}), Settings(roles={"ps": 3})).roles == {
        "ps": RoleSettings(workers=3, gpus=1)
    }


def test_another_command_of_a_role_does_not_get_the_files_arguments() -> None:
    file = Settings(roles={"ps": RoleSettings(command="a", args=("x",), env={"A": 1})})
    merged = merge(Settings(roles={"ps": RoleSettings(command="b")}), file)
    assert merged.roles == {"ps": RoleSettings(command="b", env={"A": 1})}
    merged = merge(Settings(roles={"ps": RoleSettings(args=("y",))}), file)
    assert merged.roles == {"ps": RoleSettings(command="a", args=("y",), env={"A": 1})}


def test_every_setting_has_a_help_text() -> None:
    assert all(each.metadata["help"] for each in fields(Settings))


def test_the_frameworks_that_can_be_said_are_those_that_exist() -> None:
    said = get_type_hints(Settings)["framework"]
    assert get_args(get_args(said)[0]) == FRAMEWORKS
