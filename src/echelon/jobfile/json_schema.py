"""The job file's JSON Schema, made from the types and help texts of Settings, for editors to check by.

It accepts what `read_job_file` accepts; a test holds the two together. `make schema` writes it to
`job.schema.json`, which `python -m echelon.jobfile.json_schema` prints.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from echelon.jobfile.conversion import TEXT, options_of, spellings
from echelon.model.settings import RoleSettings, Settings, SweepSettings
from echelon.values import types_of

_WITHIN: Mapping[str, type[Any]] = {"role": RoleSettings, "sweep": SweepSettings}


def schema() -> dict[str, Any]:
    """Make the schema (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "echelon job file",
        "description": "A job for: echelon run -f FILE. Paths are relative to the file.",
        **_object(Settings),
        "oneOf": [{"required": [name]} for name in ("script", "module", "command")],
        "$defs": {kind: _object(of, f"#/$defs/{kind}") for kind, of in _WITHIN.items()},
    }


def _object(kind: type[Any], at: str = "#") -> dict[str, Any]:
    help_texts = {each.name: each.metadata.get("help", "") for each in fields(Settings)}
    help_texts |= {each.name: each.metadata["help"] for each in fields(kind) if "help" in each.metadata}
    kinds = types_of(kind)
    properties: dict[str, Any] = {}
    pairs: list[dict[str, Any]] = []
    for key, name in spellings(kind).items():
        if key == name:
            properties[key] = {"description": help_texts[name], **_of(kinds[name], nested=False)}
        else:
            properties[key] = {"$ref": f"{at}/properties/{name}"}
            pairs.append({"not": {"required": [name, key]}})  # two spellings of one setting
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "allOf": pairs} if pairs else made


def _of(kind: Any, *, nested: bool) -> dict[str, Any]:
    """Write a type as a schema. `nested`: part of a list or mapping, where a boolean can be text."""
    if kind is Any:
        return {}
    options = options_of(kind)
    schemas = [_of_one(option) for option in options if option not in TEXT or not set(options) >= TEXT]
    if set(options) >= TEXT:
        schemas.append({"type": ["string", "number", "boolean"] if nested else ["string", "number"]})
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _of_one(option: Any) -> dict[str, Any]:
    origin = get_origin(option) or option
    if origin is Literal:
        return {"enum": list(get_args(option))}
    if origin is Sequence:
        return {"type": "array", "items": _of(get_args(option)[0], nested=True)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of(get_args(option)[1], nested=True)}
    within = next((name for name, of in _WITHIN.items() if of is origin), None)
    if within is not None:
        return {"$ref": f"#/$defs/{within}"}
    plain: dict[Any, dict[str, Any]] = {
        str: {"type": "string", "minLength": 1},
        int: {"type": "integer"},
        bool: {"type": "boolean"},
    }
    return plain[origin]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2, sort_keys=True) + "\n")
