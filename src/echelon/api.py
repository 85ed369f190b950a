"""The Python face: `echelon.run`, `echelon.attach`, `echelon.runs`.

The command line calls the same functions below these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from echelon.engines.choose import choose_engine
from echelon.errors import InvalidJob
from echelon.handle import Run
from echelon.model.run import parse_uri
from echelon.model.settings import Settings
from echelon.model.status import RunSummary
from echelon.submit import Prepared, gather, prepare, prepare_function, submit, where_to_look


def run(
    what: str | os.PathLike[str] | Callable[..., object] | None = None,
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    **settings: Any,
) -> Run:
    """Start a script or a function on many workers, and return its handle at once.

    Every flag of `echelon run` is a keyword here, with underscores for dashes::

        echelon.run("train.py", args=["--epochs", "3"], workers=2)
        echelon.run(train, kwargs={"lr": 1e-3}, workers=4, gpus=1)
        echelon.run(command=["./any-program"], workers=2)
    """
    from echelon.jobfile import settings_from

    settings = {key: value for key, value in settings.items() if value is not None}
    if callable(what):
        said = gather(settings_from(settings, source="echelon.run()"))
        prepared = prepare_function(what, args, kwargs or {}, said)
    else:
        if kwargs:
            raise InvalidJob(
                "kwargs", kwargs, "is for a function", hint='a script takes args=["--epochs", "3"]'
            )
        if isinstance(args, str):
            raise InvalidJob("args", args, "is one text", hint='give a list of words: args=["--epochs", "3"]')
        if what is not None:
            settings["script"] = os.fspath(what)
        if args:
            settings["args"] = [str(word) for word in args]
        said = gather(settings_from(settings, source="echelon.run()"))
        prepared = prepare(said)
    return start(prepared, said)


def start(prepared: Prepared, said: Settings) -> Run:
    """Submit what was prepared, to where the settings say."""
    if said.dry_run:
        raise InvalidJob(
            "dry_run", True, "leaves no run to return", hint="`echelon run --dry-run` shows what would happen"
        )
    engine = choose_engine(said.on, context=said.context, namespace=said.namespace)
    return submit(prepared, engine, no_wait=bool(said.no_wait), stays=False)


def attach(
    uri: str, *, on: str | None = None, context: str | None = None, namespace: str | None = None
) -> Run:
    """The handle on a run that exists, by its address or its name."""
    on, context, namespace = where_to_look(on, context, namespace)
    ref = parse_uri(uri, on or "local")
    engine = choose_engine(ref.engine, context=ref.context or context, namespace=ref.namespace or namespace)
    return Run(engine.read(ref).ref, engine)  # says so if there is no such run


def runs(
    *, on: str | None = None, context: str | None = None, namespace: str | None = None
) -> Sequence[RunSummary]:
    """Every run there is, the newest first."""
    on, context, namespace = where_to_look(on, context, namespace)
    return choose_engine(on, context=context, namespace=namespace).runs()
