"""How the values of settings are written: each form is a parser, its printer, and words for a person.

A parser is given the name of the setting, for its errors, and what the user gave; its printer makes of the
Job's value what the parser reads as the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon.errors import InvalidJob
from echelon.model.elastic import parse_workers
from echelon.model.job import Secret
from echelon.model.pods import pod
from echelon.model.resources import (
    format_memory,
    parse_cpus,
    parse_duration,
    parse_duration_or_zero,
    parse_memory,
    parse_size,
    write_amount,
    write_duration,
)
from echelon.model.tracking import Tracking, parse_tracker
from echelon.values import frozen


def _in_words(value: Any) -> str:
    """A value that was written, on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)


@frozen
class Form:
    """`read` makes a value of the Job of what was given, `write` what is given of that value; `words` is that
    for a person, where it differs. `metavar` stands for the value in help.
    """

    read: Callable[[str, Any], Any]
    write: Callable[[Any], Any] = lambda value: value
    words: Callable[[Any], str] | None = None
    metavar: str | None = None

    def show(self, value: Any) -> str:
        """A value of the Job for a person to read."""
        return _in_words(self.write(value)) if self.words is None else self.words(value)


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(name, value, "is not a whole number", hint=f"for example {name}: 1")
    return value


def _each(one: Form) -> Form:
    return Form(
        read=lambda name, values: tuple(one.read(name, value) for value in values),
        write=lambda values: [one.write(value) for value in values],
        metavar=one.metavar,
    )


def _mapping(read: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Form:
    return Form(read=lambda _name, values: read(values), write=dict)


def _alone(
    read: Callable[[Any], Any],
    write: Callable[[Any], Any] = lambda value: value,
    *,
    metavar: str | None = None,
) -> Form:
    """Of a parser that knows its setting's name."""
    return Form(read=lambda _name, value: read(value), write=write, metavar=metavar)


def split_command(command: Sequence[object] | str | None) -> tuple[str, ...]:
    """The arguments of a command that was given as a list, or as one line."""
    if isinstance(command, str):
        import shlex

        try:
            return tuple(shlex.split(command))
        except ValueError as error:
            raise InvalidJob(
                "command", command, f"cannot be split: {error}", hint="give a list of words"
            ) from None
    return tuple(str(word) for word in command or ())


def _parse_secret(text: str) -> Secret:
    name, separator, value = text.partition("=")
    if separator and not value.startswith("@"):
        raise InvalidJob(
            "secret",
            f"{name}=…",
            "has its value in the open",
            hint=f"export {name} and say --secret {name}, or {name}=@FILE",
        )
    return Secret(name=name, file=value[1:] if separator else None)


def _write_secret(secret: Secret) -> str:
    return secret.name if secret.file is None else f"{secret.name}=@{secret.file}"


def _parse_tracking(text: str) -> Tracking | None:
    tracker = parse_tracker(text)
    return None if tracker is None else Tracking(to=tracker)


def _seconds(value: float) -> str:
    return f"{value:g} s"


def _mount_in_words(mount: pod.Mount) -> str:
    return f"{mount.kind}:{mount.source} at {mount.path}{', read only' * mount.read_only}"


AS_IT_IS = Form(read=lambda _name, value: value)
SWITCH = Form(read=lambda _name, value: bool(value))
NUMBER = Form(read=_whole_number)
WORKERS = Form(read=lambda name, value: parse_workers(name, value)[1])
AT_MOST = Form(read=_whole_number, words=lambda number: f"up to {number}")
COUNTS = Form(
    read=lambda name, counts: {key: _whole_number(f"{name} {key}", each) for key, each in counts.items()},
    write=dict,
)
CPUS = Form(read=parse_cpus, write=write_amount, metavar="N[:N]|N/gpu")
MEMORY = Form(read=parse_memory, write=write_amount, metavar="SIZE[:SIZE]|SIZE/gpu")
SIZE = Form(read=parse_size, write=str, words=format_memory, metavar="SIZE")
TIME = Form(read=parse_duration, write=write_duration, words=_seconds, metavar="TIME")
TIME_OR_ZERO = replace(TIME, read=parse_duration_or_zero)
TTL = replace(TIME, read=lambda _name, value: pod.parse_ttl(value))
TEXTS = _each(Form(read=lambda _name, value: str(value)))
COMMAND = Form(read=lambda _name, value: split_command(value), write=list)
VARIABLES = _mapping(lambda values: {key: str(value) for key, value in values.items()})
SECRETS = Form(
    read=lambda _name, texts: tuple(_parse_secret(text) for text in texts),
    write=lambda secrets: [_write_secret(each) for each in secrets],
    words=lambda secrets: ", ".join(each.name for each in secrets),
    metavar="NAME[=@FILE]",
)
TRACKER = _alone(_parse_tracking, lambda tracking: tracking.to, metavar="TRACKER")
OBJECT_NAME = Form(read=pod.parse_object_name, metavar="NAME")
OBJECT_NAMES = _each(OBJECT_NAME)
IMAGE = _alone(pod.parse_image, metavar="IMAGE")
MOUNTS = replace(
    _each(_alone(pod.parse_mount, pod.write_mount, metavar="KIND:SOURCE:/PATH[:ro]")),
    words=lambda mounts: "; ".join(map(_mount_in_words, mounts)),
)
TOLERATIONS = _each(_alone(pod.parse_toleration, pod.write_toleration, metavar="KEY[=VALUE][:EFFECT]"))
VOLUME_PATH = Form(read=pod.parse_volume_path, write=pod.write_volume_path, metavar="pvc:NAME[/PATH]")
CODE = Form(
    read=lambda name, text: None if text == pod.IMAGE else pod.parse_volume_path(name, text),
    write=pod.write_volume_path,
    metavar="pvc:NAME/PATH|image",
)
OUTPUT = _alone(pod.parse_output, pod.write_output, metavar="VOLUME")
CHECKPOINTS = _alone(pod.parse_checkpoints, metavar="PATH")
PACKAGES = _each(_alone(pod.parse_package, metavar="PACKAGE"))
NODE_LABELS = _mapping(pod.parse_node_selector)
LABELS = _mapping(pod.parse_labels)
ANNOTATIONS = _mapping(pod.parse_annotations)
TEMPLATE = _mapping(dict)
