"""Settings as the text of a job file, which reads as the same settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import yaml

from echelon.jobfile.document import plain
from echelon.model.settings import RoleSettings, Settings


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.2 reads as a number, a boolean or nothing; several lines are a block."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - none: a person reads it
        """Write everything out."""
        return True

    def serialize(self, node: yaml.Node) -> None:
        """Give each setting a line of its own, also where none of them holds others."""
        if isinstance(node, yaml.MappingNode):
            node.flow_style = False
        super().serialize(node)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text.strip("\n") and all(line == line.rstrip() for line in text.split("\n")):
        style = "|"
    elif not isinstance(plain(text), str):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write_job_file(settings: Settings) -> str:
    """The job file; what is not given is left out."""
    text = yaml.dump(
        job_file_data(settings),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=110,
        default_flow_style=None,
    )
    assert isinstance(text, str)
    return text


def job_file_data(value: Settings | RoleSettings) -> dict[str, Any]:
    """What it holds, by name."""
    found = {}
    for each in fields(value):
        given = getattr(value, each.name)
        if given is not None:
            found[each.name] = _as_data(given)
    return found


def _as_data(value: Any) -> Any:
    if isinstance(value, RoleSettings):
        return job_file_data(value)
    if isinstance(value, Mapping):
        return {key: _as_data(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_as_data(each) for each in value]
    return value
