"""Long lists of large objects, read page by page into shapes.

A thousand nodes as they come are 20 MB of text and 120 MB of dictionaries. Here one page's text is in memory
at a time, and of each object only what its shape has fields for. Called by `inventory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from echelon.errors import Unreachable

if TYPE_CHECKING:
    from echelon.engines.kubernetes.api import Api

T = TypeVar("T")
_PAGE = 100


class _Mark(msgspec.Struct):
    more: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _Mark = msgspec.field(default_factory=_Mark)
    items: list[T] | None = None


def list_shapes(
    api: Api, kind: str, shape: type[T], *, selector: str = "", fields: str = "", namespace: str | None = None
) -> list[T]:
    """All objects of a kind that fit, each in its shape."""
    from echelon.engines.kubernetes.api import Gone

    decoder = msgspec.json.Decoder(_Page[shape])  # type: ignore[valid-type]
    found: list[T] = []
    mark, limit = "", _PAGE
    while True:
        try:
            text = api.page(
                kind, selector=selector, fields=fields, namespace=namespace, limit=limit, mark=mark
            )
            page = decoder.decode(text)
        except Gone:
            if not mark:
                raise
            found, mark, limit = [], "", 0  # it took too long, and the rest is gone: all in one piece
            continue
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreachable(
                f"{api.access.server} does not answer as an API server does: {error}",
                hint="check the server's address in the kubeconfig; a login page may stand in between",
            ) from None
        found += page.items or ()
        mark = page.metadata.more
        if not mark:
            return found
