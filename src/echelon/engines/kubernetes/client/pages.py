"""Long lists, read page by page; large objects, parsed into shapes.

A thousand nodes are 20 MB of JSON and 120 MB of dictionaries. With shapes, one page of JSON is in memory at a
time, and of each object only the fields that its shape has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from echelon.engines.decoding import decode, decoder_of
from echelon.engines.kubernetes.client import border
from echelon.engines.kubernetes.client.answers import no_api_server
from echelon.engines.kubernetes.client.http.refusals import Gone
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import Unreachable

P = TypeVar("P")
T = TypeVar("T")
_MOST_PAGES = 20_000  # two million objects


class _Mark(msgspec.Struct, rename="camel"):
    more: str = msgspec.field(name="continue", default="")
    resource_version: str = ""


class _Page(msgspec.Struct, Generic[T]):
    metadata: _Mark = msgspec.field(default_factory=_Mark)
    items: list[T] | None = None


class _Raw(msgspec.Struct):
    """A page whose items are parsed one by one."""

    metadata: _Mark = msgspec.field(default_factory=_Mark)
    items: list[msgspec.Raw] | None = None


def read_pages(fetch: Callable[[int, str], P], mark_of: Callable[[P], str], size: int) -> list[P]:
    """Every page of a list: `fetch(limit, mark)` gets one page, `mark_of` is its continue token."""
    found: list[P] = []
    mark, limit = "", size
    while True:
        try:
            page = fetch(limit, mark)
        except Gone:
            if not mark:
                raise
            found, mark, limit = [], "", 0  # the token expired: read all at once
            continue
        found.append(page)
        before, mark = mark, mark_of(page)
        if not mark:
            return found
        if mark == before or len(found) >= _MOST_PAGES:
            raise Unreachable(
                f"the API server's list has no end: {len(found)} pages have come",
                hint="it does not behave as an API server: check its address in the kubeconfig",
            )


def read_shapes(
    page: Callable[[int, str], bytes], shape: type[T], access: Access, size: int
) -> tuple[list[T], str]:
    """Every object of a list as a `shape`, and the list's version: `page(limit, mark)` is one page as the
    server wrote it.

    An object that does not have the shape is left out: it must not hide the others."""
    decoder = decoder_of(_Page[shape])  # type: ignore[valid-type]

    def fetch(limit: int, mark: str) -> _Page[T]:
        content = page(limit, mark)
        try:
            return decoder.decode(content)
        except msgspec.ValidationError:
            return one_by_one(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise no_api_server(access, str(error)) from None

    def one_by_one(content: bytes) -> _Page[T]:
        try:
            raw = decode(content, _Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise no_api_server(access, str(error)) from None
        found: list[T] = []
        for each in raw.items or ():
            with suppress(border.Damaged, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                found.append(border.decode(each, shape))
        return _Page(metadata=raw.metadata, items=found)

    pages = read_pages(fetch, lambda each: each.metadata.more, size)
    return [item for each in pages for item in each.items or ()], pages[-1].metadata.resource_version
