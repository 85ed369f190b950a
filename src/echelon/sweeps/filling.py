"""A trial's values in the job that it runs: for `{name}` in its arguments, and as ECHELON_PARAM_NAME in its
environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from echelon.model.job import Job, Role

PARAM = "ECHELON_PARAM_"  # before the name of a parameter, in the environment of its script
PARAMS = "ECHELON_PARAMS"  # all of them as a JSON object, for a function


def filled(job: Job, values: Mapping[str, str]) -> Job:
    """The job with the values of a trial. What else stands in braces is the user's."""
    words = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))

    def fill(text: str) -> str:
        return words.sub(lambda found: values[found[0][1:-1]], text)

    def fill_all(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(fill, texts))

    env = {name: fill(text) for name, text in job.env.items()}
    return replace(
        job,
        args=fill_all(job.args),
        command=fill_all(job.command),
        env={**env, **{f"{PARAM}{name.upper()}": value for name, value in values.items()}},
        roles=tuple(
            replace(
                role,
                command=fill_all(role.command),
                args=None if role.args is None else fill_all(role.args),
                env={name: fill(text) for name, text in role.env.items()},
            )
            for role in job.roles
        ),
    )


def without_place(job: Job, names: Iterable[str]) -> list[str]:
    """The parameters that stand in no argument and no variable: a script finds them in its environment
    alone.
    """
    texts = list(_texts(job))
    return [name for name in names if not any(f"{{{name}}}" in text for text in texts)]


def _texts(job: Job) -> Iterator[str]:
    parts: tuple[Job | Role, ...] = (job, *job.roles)
    for part in parts:
        yield from part.args or ()
        yield from part.command
        yield from part.env.values()
