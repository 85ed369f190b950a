"""One repository of a registry, through the distribution API.

A layer is sent only if the repository does not have it: one of the same registry is mounted, any other is
uploaded in one streamed request. The manifest is sent last, so that an interrupted push changes no tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from urllib.parse import urlencode, urljoin, urlsplit

from echelon.errors import EchelonError, Refused
from echelon.image import oci
from echelon.image.oci import Descriptor
from echelon.image.reference import Reference
from echelon.image.registry.transport import Transport, Unsteady


class Repository:
    """A repository to read, or also to write; `base` is one from which layers may be mounted."""

    def __init__(
        self, image: Reference, right: str, *, base: Reference | None = None, plain_http: bool = False
    ) -> None:
        self.image = image
        self._mountable = base.repository if base and base.registry == image.registry else ""
        also = [f"repository:{self._mountable}:pull"] if self._mountable else []
        self._transport = Transport(image, right, also=also, plain_http=plain_http)
        self._path = f"/v2/{image.repository}"

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def document(self, which: str) -> tuple[bytes, str]:
        """A manifest or index by tag or digest, as it is, and the type it was served with."""
        return self._transport.patiently(lambda: self._document(which))

    def blob(self, wanted: Descriptor) -> Iterator[bytes]:
        """A blob's bytes, checked; a broken download is resumed."""
        return oci.verified(self._pieces(wanted), wanted, f"{wanted.digest} of {self.image}")

    def check_right(self) -> None:
        """Check the right to push before anything large is made: begin an upload, and cancel it."""

        def begin() -> None:
            with self._transport.call("POST", f"{self._path}/blobs/uploads/", fine=(202,)) as response:
                location = self._location(response.headers.get("Location", ""), str(response.url))
            # Cancelling may need a right that this user lacks, or be unsupported; nothing is lost then.
            with suppress(EchelonError), self._transport.call("DELETE", location, fine=(202, 204, 401)):
                pass

        self._transport.patiently(begin)

    def has(self, blob: Descriptor) -> bool:
        """Whether the repository holds a blob."""

        def ask() -> bool:
            path = f"{self._path}/blobs/{blob.digest}"
            with self._transport.call("HEAD", path, fine=(200, 404)) as response:
                return response.status_code == 200

        return self._transport.patiently(ask)

    def send(self, blob: Descriptor, read: Callable[[], Iterable[bytes]]) -> str:
        """Bring a blob to the repository, with retries; returns how: `mounted` or `sent`."""
        return self._transport.patiently(lambda: self._send(blob, read))

    def put_manifest(self, tag: str, data: bytes) -> str:
        """Upload a manifest under a tag; from then on the image can be pulled. Returns its digest."""
        described = oci.describe(oci.MANIFEST, data)

        def put() -> None:
            with self._transport.call(
                "PUT",
                f"{self._path}/manifests/{tag}",
                headers={"Content-Type": oci.MANIFEST, "Content-Length": str(len(data))},
                content=lambda: iter((data,)),
                fine=(201,),
            ) as response:
                self._check_stored(response.headers.get("Docker-Content-Digest", ""), described)

        self._transport.patiently(put)
        return described.digest

    def _document(self, which: str) -> tuple[bytes, str]:
        path = f"{self._path}/manifests/{which}"
        with self._transport.call("GET", path, headers={"Accept": ", ".join(oci.DOCUMENTS)}) as response:
            what = f"the manifest of {self.image}"
            data = self._transport.read(response, oci.LARGEST_DOCUMENT, what)
            return data, response.headers.get("Content-Type", "")

    def _pieces(self, wanted: Descriptor) -> Iterator[bytes]:
        done = fruitless = 0
        while True:
            before = done
            try:
                for piece in self._rest_of(wanted, done):
                    done += len(piece)
                    yield piece
            except Unsteady as trouble:
                fruitless = fruitless + 1 if done == before else 0
                self._transport.rest(fruitless, trouble)
            else:
                return

    def _rest_of(self, wanted: Descriptor, start: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-"} if start else {}
        path = f"{self._path}/blobs/{wanted.digest}"
        with self._transport.call("GET", path, headers=headers, fine=(200, 206)) as response:
            skip = 0 if response.status_code == 206 else start  # not every registry supports ranges
            for piece in response.iter_raw():
                if fresh := piece[skip:]:
                    yield fresh
                skip = max(0, skip - len(piece))

    def _send(self, blob: Descriptor, read: Callable[[], Iterable[bytes]]) -> str:
        query = ""
        if self._mountable:
            query = "?" + urlencode({"mount": blob.digest, "from": self._mountable})
        start = f"{self._path}/blobs/uploads/{query}"
        with self._transport.call("POST", start, fine=(201, 202)) as response:
            if response.status_code == 201:
                return "mounted"
            location = self._location(response.headers.get("Location", ""), str(response.url))
        location += ("&" if urlsplit(location).query else "?") + urlencode({"digest": blob.digest})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        with self._transport.call("PUT", location, headers=headers, content=read, fine=(201,)) as done:
            self._check_stored(done.headers.get("Docker-Content-Digest", ""), blob)
        return "sent"

    def _location(self, said: str, asked: str) -> str:
        """The registry's next address; one behind a proxy may not know that it is reached by TLS."""
        if not said:
            raise Refused(
                f"{self.image.registry} does not say where to upload", hint="is it an image registry?"
            )
        here, there = urlsplit(self._transport.origin()), self._transport.split(said)
        if not there.netloc:
            return urljoin(asked, said)
        return there._replace(scheme=here.scheme).geturl() if there.netloc == here.netloc else said

    def _check_stored(self, said: str, sent: Descriptor) -> None:
        if said and said != sent.digest:
            raise Refused(
                f"{self.image.registry} has stored {said[:100]} where {sent.digest} was sent",
                hint="something on the way to the registry changes what is sent",
            )
