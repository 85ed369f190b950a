"""What the API server answers, read and checked: an object, the events of a watch, how a command ended.

The one place that tells an answer from a failure that arrives in the form of one: a page of somebody who
stands in between, an event that is an error, a command that could not be run. Nothing here talks to anybody.
Called by `api`, `pages` and `execute`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from echelon.engines.kubernetes.client.access import Access
from echelon.engines.kubernetes.client.channels import exit_code_of
from echelon.engines.kubernetes.client.refusals import Deed, Object, from_status, name_server, unreachable
from echelon.engines.kubernetes.client.stream import split_lines
from echelon.errors import Unreachable


def read_object(content: bytes, access: Access) -> Object:
    """An object; Unreachable if it is none."""
    try:
        answer = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = None
    if not isinstance(answer, dict):
        raise no_api_server(access)
    return answer


def no_api_server(access: Access, why: str = "") -> Unreachable:
    """What to raise when no API server writes like that."""
    return Unreachable(
        f"{name_server(access)} does not answer as an API server does{f': {why}' if why else ''}",
        hint="check the server's address in the kubeconfig; a login page may stand in between",
    )


def read_events(pieces: Iterable[bytes], deed: Deed, access: Access) -> Iterator[tuple[str, Object]]:
    """The events of a watch; its error, which is an event too, is raised."""
    for line in split_lines(pieces):
        if line:
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                raise from_status(event["object"], deed, access)
            yield event["type"], event["object"]


def read_exit_code(content: bytes, deed: Deed, access: Access) -> int:
    """The exit code in a command's last message; raises if there is none, because it could not be run or the
    message did not arrive.
    """
    try:
        status = msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise unreachable(ConnectionResetError(), access) from None
    code = exit_code_of(status)
    if code is None:
        raise from_status(status, deed, access)
    return code
