"""Responses of the API server, parsed and checked: objects, events of a watch, the exit code of a command.

A failure may arrive in the form of a success: a proxy's login page, a watch event that is an error, a command
that could not be run. This module is the one place that finds out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec

from echelon.engines.decoding import decode
from echelon.engines.kubernetes.client import border
from echelon.engines.kubernetes.client.channels import exit_code_of
from echelon.engines.kubernetes.client.http.refusals import (
    Object,
    Request,
    from_status,
    name_server,
    unreachable,
)
from echelon.engines.kubernetes.client.http.stream import split_lines
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import Unreachable

T = TypeVar("T")
Change = tuple[str, str, T | None]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _Versioned = msgspec.field(default_factory=_Versioned)


def read_object(content: bytes, access: Access) -> Object:
    """The object in a response; Unreachable if there is none."""
    try:
        answer = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise no_api_server(access)
    return answer


def no_api_server(access: Access, why: str = "") -> Unreachable:
    """The error for a response that no API server sends."""
    return Unreachable(
        f"{name_server(access)} does not answer as an API server does{f': {why}' if why else ''}",
        hint="check the server's address in the kubeconfig; a login page may stand in between",
    )


def reader_of(kind: str, shape: type[T]) -> Callable[[msgspec.Raw], T | None]:
    """What reads an object of a kind; None from it for one that is damaged."""

    def read(raw: msgspec.Raw) -> T | None:
        with suppress(border.Damaged):
            found = border.decode(raw, shape)
            return found if not isinstance(found, dict) or border.admit(kind, found) is not None else None
        return None

    return read


def read_events(
    pieces: Iterable[bytes], read: Callable[[msgspec.Raw], T | None], request: Request, access: Access
) -> Iterator[Change[T]]:
    """The events of a watch: what happened, the version since, and the object; None for a bookmark, or for an
    object that is damaged. An ERROR event is raised.
    """
    for line in filter(None, split_lines(pieces)):
        try:
            event = decode(line, _Event)
            if event.type == "ERROR":
                raise from_status(read_object(bytes(event.object), access), request, access)
            found = None if event.type == "BOOKMARK" else read(event.object)
            version = _version_of(event.object)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise no_api_server(access) from None
        yield event.type, version, found


def _version_of(raw: msgspec.Raw) -> str:
    try:
        return decode(raw, _Object).metadata.resource_version
    except msgspec.ValidationError:
        return ""


def read_exit_code(content: bytes, request: Request, access: Access) -> int:
    """The exit code in a command's status message. Raises if the command could not be run or the message did
    not arrive.
    """
    try:
        status = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = None
    if not isinstance(status, dict):
        raise unreachable(ConnectionResetError(), access)
    code = exit_code_of(status)
    if code is None:
        raise from_status(status, request, access)
    return code
