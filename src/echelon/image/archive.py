"""An image in a file: an OCI layout in a tar, as `skopeo`, `podman load` and `ctr images import` read it.

The result of `--to`, and a source with `--base oci-archive:FILE`. A file appears whole or not at all. Nothing
that is read is trusted: blobs are found by their path in the tar and checked against their digests.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from echelon.errors import Refused, StateTrouble, Unavailable, from_os_error
from echelon.image import oci
from echelon.image.oci import Descriptor, Platform
from echelon.values import frozen

PREFIX = "oci-archive:"
_PIECE = 1 << 20
_INDEX = "index.json"
_LAYOUT = ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')


@frozen
class _Span:
    start: int
    size: int


class Archive:
    """An archive opened for reading: one index, and blobs by digest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, _Span] = {}
        try:
            self._file = path.open("rb")
        except FileNotFoundError:
            raise Unavailable(f"there is no archive {path}", hint="check the path") from None
        except OSError as error:
            raise from_os_error(error, path) from error
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as tar:
                for member in tar:
                    if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                        name = member.name.removeprefix("./")
                        self._places[name] = _Span(start=member.offset_data, size=member.size)
        except (tarfile.TarError, OSError) as error:
            self._file.close()
            raise Unavailable(
                f"{path} is not an OCI archive: {error}",
                hint="`podman save --format oci-archive` writes them",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def document(self, which: str) -> tuple[bytes, str]:
        """The index (`which` is empty), or a manifest by its digest."""
        name = _blob_name(which) if which else _INDEX
        place = self._place(name)
        if place.size > oci.LARGEST_DOCUMENT:
            raise Refused(f"{name} in {self.path} is too large for a manifest", hint="use another archive")
        return b"".join(self._read(place)), ""

    def blob(self, wanted: Descriptor) -> Iterator[bytes]:
        """A blob's bytes, checked."""
        place = self._place(_blob_name(wanted.digest))
        return oci.verified(self._read(place), wanted, f"{wanted.digest} in {self.path}")

    def _place(self, name: str) -> _Span:
        if name not in self._places:
            raise Unavailable(f"{self.path} holds no {name}", hint="is it an OCI archive, and whole?")
        return self._places[name]

    def _read(self, place: _Span) -> Iterator[bytes]:
        done = 0
        while done < place.size:
            piece = os.pread(self._file.fileno(), min(_PIECE, place.size - done), place.start + done)
            if not piece:
                raise Refused(f"{self.path} ends too early", hint="write or copy it again")
            done += len(piece)
            yield piece


def write_archive(
    path: Path,
    documents: Iterable[bytes],
    blobs: Mapping[Descriptor, Iterable[bytes]],
    *,
    image: Descriptor,
    platform: Platform,
    name: str,
) -> None:
    """Write an image: an index with its `name` (if any), its documents and its layers."""
    entry: dict[str, Any] = {
        "mediaType": image.media_type,
        "digest": image.digest,
        "size": image.size,
        "platform": {"os": platform.os, "architecture": platform.architecture}
        | ({"variant": platform.variant} if platform.variant else {}),
    }
    if name:
        # containerd reads the first; the specification and podman know the second.
        tag = name.rpartition(":")[2]
        entry["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
    index = oci.encode({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": [entry]})
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise StateTrouble(
            f"{path} cannot be written: {error.strerror}", hint="choose another --to"
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            _add(file, _LAYOUT[0], len(_LAYOUT[1]), [_LAYOUT[1]])
            _add(file, _INDEX, len(index), [index])
            for document in documents:
                _add(file, _blob_name(oci.describe("", document).digest), len(document), [document])
            for blob, pieces in blobs.items():
                _add(file, _blob_name(blob.digest), blob.size, pieces)
            file.write(b"\0" * (2 * tarfile.BLOCKSIZE))
            file.flush()
            os.fsync(descriptor)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        raise from_os_error(error, path) from error
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()


def _blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(file: IO[bytes], name: str, size: int, pieces: Iterable[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    file.write(info.tobuf(tarfile.PAX_FORMAT))
    for piece in pieces:
        file.write(piece)
    file.write(b"\0" * (-size % tarfile.BLOCKSIZE))
