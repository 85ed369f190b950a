"""Responses of the API server, parsed and checked: objects, events of a watch, the exit code of a command.

A failure may arrive in the form of a success: a proxy's login page, a watch event that is an error, a command
that could not be run. This module is the one place that finds out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from echelon.engines.kubernetes.client.border import admit
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


def read_events(
    pieces: Iterable[bytes], kind: str, request: Request, access: Access
) -> Iterator[tuple[str, Object]]:
    """The events of a watch; an ERROR event is raised."""
    for line in filter(None, split_lines(pieces)):
        event = read_object(line, access)
        change, obj = event.get("type"), event.get("object")
        if not isinstance(change, str) or not isinstance(obj, dict):
            raise no_api_server(access)
        if change == "ERROR":
            raise from_status(obj, request, access)
        found = obj if change == "BOOKMARK" else admit(kind, obj)
        if found is not None:
            yield change, found


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
