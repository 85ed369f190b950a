"""The image format: manifests, indexes and configurations, checked before use. Pure.

A registry is not trusted: its responses are measured and hashed before they are parsed, and every field that
is used is checked. Docker's older media types are accepted, and written as OCI's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from echelon.errors import InvalidJob, Refused, Unavailable
from echelon.image.reference import DIGEST
from echelon.values import frozen

_OCI = "application/vnd.oci.image"
_DOCKER = "application/vnd.docker"
INDEX = f"{_OCI}.index.v1+json"
MANIFEST = f"{_OCI}.manifest.v1+json"
CONFIG = f"{_OCI}.config.v1+json"
LAYER = f"{_OCI}.layer.v1.tar+gzip"
AS_OCI = {
    f"{_DOCKER}.distribution.manifest.list.v2+json": INDEX,
    f"{_DOCKER}.distribution.manifest.v2+json": MANIFEST,
    f"{_DOCKER}.container.image.v1+json": CONFIG,
    f"{_DOCKER}.image.rootfs.diff.tar.gzip": LAYER,
    f"{_DOCKER}.image.rootfs.diff.tar": f"{_OCI}.layer.v1.tar",
    f"{_DOCKER}.image.rootfs.diff.tar.zstd": f"{_OCI}.layer.v1.tar+zstd",
}
DOCUMENTS = (INDEX, MANIFEST, *list(AS_OCI)[:2])  # what a registry may send for an image
LARGEST_DOCUMENT = 8 << 20  # manifests are kilobytes; the specification asks registries for 4 MiB
_ARCHITECTURES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}


@frozen
class Descriptor:
    """A blob by its digest and size, which is enough to check it."""

    media_type: str
    digest: str
    size: int


@frozen
class Platform:
    """The system and processor that an image is for."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


USUAL = Platform(os="linux", architecture="amd64")


@frozen
class ImageManifest:
    """An image for one platform, from its manifest."""

    digest: str
    config: Descriptor
    layers: tuple[Descriptor, ...]


@frozen
class Choice:
    """One of the images of an index."""

    image: Descriptor
    platform: Platform | None


def parse_platform(text: str) -> Platform:
    """Parse linux/amd64 or linux/arm64/v8; the kernel's names of processors are accepted too."""
    parts = text.lower().split("/")
    if len(parts) not in (2, 3) or not all(part.isalnum() or "_" in part for part in parts):
        raise InvalidJob("platform", text, "is not a platform", hint="for example linux/amd64 or linux/arm64")
    system, architecture = parts[0], _ARCHITECTURES.get(parts[1], parts[1])
    if system != "linux":
        raise InvalidJob("platform", text, "is not Linux", hint="for example linux/amd64 or linux/arm64")
    return Platform(os=system, architecture=architecture, variant=parts[2] if parts[2:] else "")


def matches(wanted: Platform, offered: Platform) -> bool:
    """Whether an image for one platform serves the other: arm64 and arm64/v8 are the same."""
    if (wanted.os, wanted.architecture) != (offered.os, offered.architecture):
        return False
    usual = "v8" if wanted.architecture == "arm64" else ""
    if wanted.architecture == "amd64" and not wanted.variant:
        return offered.variant in ("", "v1")  # v2 and later are for newer processors only
    return (wanted.variant or usual) == (offered.variant or usual)


def check_digest(data: bytes, digest: str, what: str) -> None:
    """Refuse bytes that do not match their digest."""
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != digest:
        raise _strange(what, f"it should be {digest} and is {found}")


def verified(pieces: Iterable[bytes], blob: Descriptor, what: str) -> Iterator[bytes]:
    """Pass a blob on, and refuse it before its last piece if it does not match its descriptor."""
    seen, size = hashlib.sha256(), 0
    held = b""
    for piece in pieces:
        size += len(piece)
        if size > blob.size:
            raise _strange(what, f"it should have {blob.size} bytes and has more")
        seen.update(piece)
        if held:
            yield held
        held = piece
    if size != blob.size:
        raise _strange(what, f"it should have {blob.size} bytes and has {size}")
    if f"sha256:{seen.hexdigest()}" != blob.digest:
        raise _strange(what, f"it should be {blob.digest} and is sha256:{seen.hexdigest()}")
    if held:
        yield held


def read_document(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object; anything else is refused."""
    try:
        document = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _strange(what, "it is not JSON") from error
    if not isinstance(document, dict):
        raise _strange(what, "it is not a JSON object")
    return document


def kind_of(document: dict[str, Any], content_type: str, what: str) -> str:
    """INDEX or MANIFEST: by the document's own type, else by the type it was served with."""
    said = document.get("mediaType") or content_type.partition(";")[0].strip()
    kind = AS_OCI.get(said, said) if isinstance(said, str) else ""
    if kind in (INDEX, MANIFEST):
        return kind
    # In an archive both may leave their type out.
    held = [key for key in ("manifests", "layers") if isinstance(document.get(key), list)]
    if document.get("schemaVersion") == 2 and not document.get("mediaType") and len(held) == 1:
        return INDEX if held == ["manifests"] else MANIFEST
    if document.get("schemaVersion") == 1:
        raise Unavailable(
            f"{what} is in the format that Docker left in 2017 (schema 1)",
            hint="push the base image again with a current tool",
        )
    raise _strange(what, f"{said!r} is not a kind of image")


def read_index(document: dict[str, Any], what: str) -> tuple[Choice, ...]:
    """The images of an index."""
    entries = document.get("manifests")
    if not isinstance(entries, list):
        raise _strange(what, "its manifests are not a list")
    images = [_descriptor(entry, f"{what}: manifests[{at}]") for at, entry in enumerate(entries)]
    return tuple(
        Choice(image=image, platform=_platform(entry.get("platform")))
        for image, entry in zip(images, entries, strict=True)
    )


def choose(choices: Sequence[Choice], wanted: Platform | None, what: str) -> Choice:
    """The image for a platform; a single image is taken for what it is unless `wanted` differs."""
    # Build attestations are listed as images of an unknown platform.
    images = [each for each in choices if each.platform is None or each.platform.os != "unknown"]
    if len(images) == 1 and (wanted is None or images[0].platform is None):
        return images[0]
    for each in images:
        if each.platform is not None and matches(wanted or USUAL, each.platform):
            return each
    offered = dict.fromkeys(str(each.platform) for each in images if each.platform)
    raise Unavailable(
        f"{what} has no image for {wanted or USUAL}",
        hint=f"it has: {', '.join(offered) or 'none'}; choose with --platform, or use another base",
    )


def read_manifest(document: dict[str, Any], digest: str, what: str) -> ImageManifest:
    """An image's manifest."""
    layers = document.get("layers")
    if not isinstance(layers, list):
        raise _strange(what, "its layers are not a list")
    return ImageManifest(
        digest=digest,
        config=_descriptor(document.get("config"), f"{what}: config"),
        layers=tuple(_descriptor(entry, f"{what}: layers[{at}]") for at, entry in enumerate(layers)),
    )


def platform_of(config: dict[str, Any], what: str) -> Platform:
    """The platform in an image's configuration."""
    found = _platform(config)
    if found is None:
        raise _strange(what, "its configuration names no platform")
    return found


def encode(document: dict[str, Any]) -> bytes:
    """A document as bytes; equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def describe(media_type: str, data: bytes) -> Descriptor:
    """The descriptor of bytes."""
    return Descriptor(
        media_type=media_type, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", size=len(data)
    )


def _no_number(text: str) -> None:
    raise ValueError(text)  # NaN and Infinity: Python accepts them, JSON does not


def _descriptor(entry: object, what: str) -> Descriptor:
    if not isinstance(entry, dict):
        raise _strange(what, "it is not an object")
    media_type, digest, size = entry.get("mediaType"), entry.get("digest"), entry.get("size")
    if not isinstance(media_type, str) or not media_type:
        raise _strange(what, "it has no media type")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise _strange(what, f"{str(digest)[:100]!r} is not a sha256 digest")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 50:
        raise _strange(what, f"{str(size)[:30]} is not a size")
    return Descriptor(media_type=AS_OCI.get(media_type, media_type), digest=digest, size=size)


def _platform(entry: object) -> Platform | None:
    if not isinstance(entry, dict):
        return None
    system, architecture, variant = (entry.get(key) or "" for key in ("os", "architecture", "variant"))
    if not all(isinstance(text, str) for text in (system, architecture, variant)) or not architecture:
        return None
    return Platform(os=system, architecture=architecture, variant=variant)


def _strange(what: str, problem: str) -> Refused:
    return Refused(
        f"{what} is not to be trusted: {problem}",
        hint="try again; if it stays so, the registry, or something on the way to it, serves other bytes",
    )


def choose_platform(found: AbstractSet[str]) -> Platform:
    """The one Linux platform among those of a cluster's nodes; raises if there are several, or none."""
    linux = sorted(each for each in found if each.startswith("linux/"))
    if len(linux) != 1:
        kinds = " and ".join(linux)
        raise Unavailable(
            f"the cluster has nodes of several kinds: {kinds}" if linux else "the cluster has no Linux node",
            hint="say which one the image is for: --platform linux/amd64",
        )
    return parse_platform(linux[0])
