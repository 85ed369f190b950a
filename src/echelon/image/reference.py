"""Names of images, parsed. Pure."""

from __future__ import annotations

import re

from echelon.errors import InvalidJob
from echelon.values import frozen

HUB = "docker.io"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:.]+\])(?::[0-9]{{1,5}})?")
_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_EXAMPLE = "for example registry.example.org/team/trainer:1"


@frozen
class Reference:
    """An image by its name; without a digest it is the one that the tag names now."""

    registry: str  # as users write it, with its port: docker.io, localhost:5000
    repository: str
    tag: str
    digest: str = ""

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}"
        return name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse_reference(field: str, text: str) -> Reference:
    """Parse a name as container engines do: a first part without dot or port is not a registry.

    Raises InvalidJob, in which `field` is the flag that the name was given to.
    """
    name, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise InvalidJob(field, text, "has no digest after the @", hint="sha256: and 64 hexadecimal digits")
    first, slash, rest = name.partition("/")
    if slash and (first == "localhost" or {".", ":", "["} & set(first)):
        registry, name = first, rest
    else:
        registry = HUB
    if not _HOST.fullmatch(registry):
        raise InvalidJob(field, text, f"names no registry: {registry!r} is not a host", hint=_EXAMPLE)
    repository, colon, tag = name.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise InvalidJob(field, text, f"has no valid tag: {tag!r}", hint=_EXAMPLE)
    if registry == HUB and "/" not in repository:
        repository = f"library/{repository}"
    if len(repository) > 255 or not all(_COMPONENT.fullmatch(part) for part in repository.split("/")):
        hint = f"lower case letters, digits, and . _ - between them; {_EXAMPLE}"
        raise InvalidJob(field, text, "is not the name of an image", hint=hint)
    return Reference(
        registry=registry,
        repository=repository,
        tag=tag or ("" if digest else "latest"),
        digest=digest,
    )


def is_loopback(registry: str) -> bool:
    """Whether a registry is on this machine, where certificates are unusual."""
    found = _HOST.fullmatch(registry)
    host = found["host"] if found else ""
    return host in ("localhost", "[::1]") or re.fullmatch(r"127(?:\.\d{1,3}){3}", host) is not None
