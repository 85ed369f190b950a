"""The names of a notebook's pipeline run and of its steps: long ones are cut, and are known uncut as well."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.model.job import NAME_LENGTH

_NUMBER = 6  # characters kept free in a pipeline's name for its number
_STEP = 16  # characters kept free for the step in the name of its run


def base_name(text: str) -> str:
    """The name of a pipeline, short enough for its number and its steps."""
    return text[: NAME_LENGTH - _NUMBER - _STEP].rstrip("-")


def run_name(pipeline_run: str, step: str) -> str:
    """The name of a step's run; of a long one, the end is a digest."""
    plain = step.replace("_", "-")
    name = f"{pipeline_run}-{plain}"
    if len(name) <= NAME_LENGTH and plain.strip("-") == plain and "--" not in plain:
        return name
    import hashlib  # it loads OpenSSL, which few names need

    suffix = hashlib.sha256(step.encode()).hexdigest()[:4]
    return f"{name[: NAME_LENGTH - 5].rstrip('-')}-{suffix}"


def cut_names(text: str) -> tuple[str, ...]:
    """The names that a pipeline run, or the run of a step, may have whose uncut name is `text`: NAME-1, or
    NAME-1-STEP with the step as its tag has it, or with - for _.
    """
    return tuple(dict.fromkeys(name for name in _cut(text) if name != text))


def _cut(text: str) -> Iterator[str]:
    for found in re.finditer(r"-(\d+)(?=-|$)", text):
        pipeline_run = f"{base_name(text[: found.start()].replace('_', '-'))}-{found[1]}"
        step = text[found.end() + 1 :]
        if step:
            yield run_name(pipeline_run, step)
            yield run_name(pipeline_run, step.replace("-", "_"))
        else:
            yield pipeline_run
