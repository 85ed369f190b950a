"""Parameters of a pipeline on the command line."""

from __future__ import annotations

from echelon.errors import InvalidJob


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """The names and texts of `--param NAME=VALUE`."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidJob("param", text, "is not NAME=VALUE", hint="--param lr=0.01")
        pairs[name] = value
    return pairs
