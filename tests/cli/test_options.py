"""Flags made from the settings: sections of the help, and words that become names and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from operator import attrgetter
from typing import Literal, get_args, get_origin, get_type_hints

import click
import pytest
from click.testing import CliRunner

from echelon.cli.help import SectionedCommand, SectionedOption
from echelon.cli.options import setting_options
from echelon.errors import InvalidJob
from echelon.jobfile import settings_from
from echelon.jobfile.json_schema import schema
from echelon.model import settings as model_settings
from echelon.model.settings import ON_KUBERNETES, Settings
from echelon.values import frozen


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
        "--service-account", "--priority-class", "--shm", "--code", "--code-volume", "--pip",
        "--requirements", "--output", "--keep", "--checkpoints", "--ttl",
        "--collect", "--context", "--namespace", "--label", "--annotation", "--pod-patch", "--local-queue",
        "--scale-up", "--as",
    }  # fmt: skip
    for default in (
        "default 5m",
        "default 24h:20Gi",
        "default 7d",
        "default 10Gi",
        "default missing",
    ):
        assert default in " ".join(pods.split())  # however the lines break
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


# A value for each kind of setting, as it is written after a flag, and as a job file or a keyword has it.
BY_KIND: dict[object, tuple[str, object]] = {
    bool: ("", True),
    int: ("3", 3),
    str: ("text", "text"),
    Sequence: ("a", ("a",)),
    Mapping: ("a=3", {"a": 3}),
}
FIELDS = fields(Settings)
NAME_OF = attrgetter("name")


def members(hint: object) -> list[object]:
    return [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]


def sample(hint: object) -> tuple[str, object]:
    kind = next(kind for kind in members(hint))
    origin = get_origin(kind) or kind
    if origin is Literal:
        choice = str(get_args(kind)[-1])
        return choice, choice
    text, value = BY_KIND[origin]
    if origin is Mapping and int not in (members(get_args(kind)[1])[0],):
        value = {"a": "3"}
    return text, value


@pytest.mark.filterwarnings("ignore::echelon.model.former.FormerName")
@pytest.mark.parametrize(
    "setting", [each for each in FIELDS if each.metadata["flag"] is not False], ids=NAME_OF
)
def test_a_setting_is_a_flag_a_key_and_a_keyword_by_its_declaration_alone(setting: Field[object]) -> None:
    hint = get_type_hints(Settings)[setting.name]
    (option,) = (param for param in command().params if param.name == setting.name)
    assert isinstance(option, SectionedOption)
    assert (option.help, option.section) == (setting.metadata["help"], setting.metadata["section"])
    if setting.metadata["metavar"]:
        assert option.metavar == setting.metadata["metavar"]
    text, value = sample(hint)
    given = parse(option.opts[-1], *([text] if text else []))
    by_flag = settings_from(given, source="a test")
    by_keyword = settings_from({setting.name: value}, source="a test")
    assert by_flag == by_keyword
    assert getattr(by_flag, setting.name) == value
    about = schema()["properties"][setting.name]
    assert about["description"] == setting.metadata["help"]


@pytest.mark.parametrize("setting", [each for each in FIELDS if not each.metadata["flag"]], ids=NAME_OF)
def test_what_is_no_flag_is_a_key_all_the_same(setting: Field[object]) -> None:
    assert setting.name not in {param.name for param in command().params}
    assert schema()["properties"][setting.name]["description"] == setting.metadata["help"]


def test_a_setting_without_a_metavar_needs_none() -> None:
    """A number, a choice, a switch and pairs show by themselves how they are written; other text does not."""
    for option in setting_options(everywhere=False) + setting_options(everywhere=True):
        shown = option.hidden or option.metavar
        assert shown or option.is_flag or isinstance(option.type, click.Choice), option.name


@frozen
class More(Settings):
    """One more setting of each kind, each in one line."""

    color: str | None = model_settings._setting("a colour", metavar="NAME", short="-c")
    point: Mapping[str, int] | None = model_settings._setting("where", flag="at")
    likes: Sequence[str] | None = model_settings._setting("what it likes", metavar="THING", section="Taste")
    quick: bool | None = model_settings._setting("make haste")


def test_a_new_setting_is_one_line() -> None:
    made = SectionedCommand("run", params=list(setting_options(everywhere=False, settings=More)))
    words = ["-c", "red", "--at", "x=1", "--at=y=2", "--likes", "a", "--likes=b", "--quick"]
    given = {name: value for name, value in made.make_context("run", words).params.items() if value}
    assert given == {"color": "red", "point": {"x": 1, "y": 2}, "likes": ("a", "b"), "quick": True}
    shown = CliRunner().invoke(made, ["--help"], terminal_width=100).output
    assert "-c, --color NAME" in shown
    assert "--at NAME=N" in shown
    assert "--likes THING" in shown.partition("Taste:")[2]
    with pytest.raises(InvalidJob, match=r"point x: 'many' is not a whole number"):
        made.make_context("run", ["--at", "x=many"])


def test_the_shell_completes_a_text_that_is_one_of_some_words() -> None:
    (option,) = [each for each in command().params if each.name == "track"]
    context = click.Context(command())
    assert [each.value for each in option.shell_complete(context, "")] == ["mlflow", "tensorboard", "none"]
    assert [each.value for each in option.shell_complete(context, "t")] == ["tensorboard"]
