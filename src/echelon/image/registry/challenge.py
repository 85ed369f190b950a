"""How a registry asks for a login: the WWW-Authenticate header, parsed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from echelon.values import frozen

_SCHEME = re.compile(r"\s*,?\s*([A-Za-z]+)(?:\s+|$)")
_PARAMETER = re.compile(r'\s*,?\s*([A-Za-z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


@frozen
class Challenge:
    """What the registry wants: a password (basic), or a token from a token service (bearer)."""

    scheme: str  # basic or bearer
    realm: str = ""
    service: str = ""


def read_challenges(headers: Iterable[str]) -> Challenge | None:
    """The challenge that can be answered, bearer before basic; None if there is none."""
    found = [challenge for header in headers for challenge in _parse(header)]
    for scheme in ("bearer", "basic"):
        for challenge in found:
            if challenge.scheme == scheme and (scheme == "basic" or challenge.realm):
                return challenge
    return None


def _parse(header: str) -> list[Challenge]:
    found, at = [], 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            quoted = re.sub(r"\\(.)", r"\1", parameter[2] or "")
            parameters.setdefault(parameter[1].lower(), quoted or parameter[3] or "")
        found.append(
            Challenge(
                scheme=scheme[1].lower(),
                realm=parameters.get("realm", ""),
                service=parameters.get("service", ""),
            )
        )
    return found
