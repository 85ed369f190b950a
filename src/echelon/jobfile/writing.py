"""Settings as the text of a job file, which reads as the same settings; and a job that ran, as the job file
that asks for the same again.

What a job file has no words for stands below it as a comment: nothing is left out in silence, since the
settings are read back and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import yaml

from echelon.errors import EchelonError
from echelon.jobfile.document import plain
from echelon.model.job import Job
from echelon.model.meaning import to_job, to_settings
from echelon.model.settings import RoleSettings, Settings

# Found anew by every run: the Python, the folder, how often it was started, and what it is tracked with.
_SETTLED = ("python", "cwd", "earlier", "starts_ranks", "commit", "changed", "began")


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


def job_file_of(job: Job) -> str:
    """The text of the job file."""
    settings = to_settings(job)
    return f"{write_job_file(settings)}{_comment(job, settings)}"


def _comment(job: Job, settings: Settings) -> str:
    """What the settings do not say of the job."""
    asked = msgspec.to_builtins(job)
    try:
        read = msgspec.to_builtins(to_job(settings, name=job.name))
    except EchelonError:
        read = msgspec.to_builtins(Job(name=job.name))
    left = _differing(asked, read)
    if not left:
        return ""
    text = yaml.safe_dump(left, sort_keys=False, allow_unicode=True, width=100)
    return "".join(f"# {line}\n" for line in ["and, which this file does not say:", *text.splitlines()])


def _differing(given: dict[str, Any], read: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in given.items():
        other = read.get(key)
        if key in _SETTLED or value == other:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            found[key] = _differing(value, other)
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value not in ({}, None)}
