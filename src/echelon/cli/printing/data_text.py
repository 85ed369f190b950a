"""Values as JSON and YAML that may reach a terminal too.

Both escape the first set of control characters by themselves. What `say` keeps from a terminal beside those
(the second set, of which U+009B begins a sequence, and marks that turn the direction of writing around) is
escaped here in the same way, so that a program reads the text as it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

_HARMFUL = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def json_text(value: object, *, indent: int | None = None) -> str:
    """A value as JSON, on one line or indented."""
    import msgspec

    text = msgspec.json.encode(value)
    if indent is not None:
        text = msgspec.json.format(text, indent=indent)
    return _HARMFUL.sub(_escaped, text.decode())


def yaml_text(*documents: object) -> str:
    """Values as YAML, each a document."""
    import msgspec
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes what has to be escaped."""

    Dumper.add_representer(str, _represent)
    built = [msgspec.to_builtins(each) for each in documents]
    text = yaml.dump_all(built, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return _HARMFUL.sub(_escaped, text)


def _represent(dumper: yaml.SafeDumper, text: str) -> Any:
    style = '"' if _HARMFUL.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
