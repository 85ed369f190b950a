"""The Python face: `echelon.run`, `echelon.attach`, `echelon.runs`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from echelon.engines.choose import CLUSTER, choose_engine
from echelon.errors import InvalidJob
from echelon.finding import find
from echelon.handle import Run
from echelon.model.argument import check_argument
from echelon.model.status import RunSummary
from echelon.observation.live import tell
from echelon.preparation.prepare import prepare, prepare_function
from echelon.preparation.sources import Target, engine_at, find_surroundings, gather
from echelon.submit import submit

_EXAMPLES = {"on": CLUSTER, "context": "my-cluster", "namespace": "my-team"}


def run(
    what: str | os.PathLike[str] | Callable[..., object] | None = None,
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    **settings: Any,
) -> Run:
    """Start a script or a function on many workers, and return its handle at once. What the user should know
    of it (what travels, and what stays here) is printed to standard error, as `echelon run` does.

    Every flag of `echelon run` is a keyword here, with underscores for dashes::

        echelon.run("train.py", args=["--epochs", "3"], workers=2)
        echelon.run(train, kwargs={"lr": 1e-3}, workers=4, gpus=1)
        echelon.run(command=["./any-program"], workers=2)
    """
    from echelon.jobfile import settings_from

    given = {key: value for key, value in settings.items() if value is not None}
    _check_arguments(args, kwargs)
    if not callable(what):
        given |= _script(what, args, kwargs)
    surroundings = find_surroundings()
    merged = gather(settings_from(given, source="echelon.run()"), surroundings)
    if merged.dry_run:
        raise InvalidJob(
            "dry_run", True, "leaves no run to return", hint="`echelon run --dry-run` shows what would happen"
        )
    engine = choose_engine(merged.on, context=merged.context, namespace=merged.namespace)
    if callable(what):
        from echelon.function.returns import check_return

        check_return(what, remote=engine.traits.remote)
        prepared = prepare_function(what, tuple(args), kwargs or {}, merged, surroundings, engine.traits)
    else:
        prepared = prepare(merged, surroundings, engine.traits)
    for note in (*prepared.notes, *engine.notes(prepared.job)):
        tell(note)
    return submit(
        prepared,
        engine,
        no_wait=bool(merged.no_wait),
        stays=False,
        replace=bool(merged.replace),
        tell=tell,
    )


def attach(
    uri: str | None = None,
    *,
    on: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
) -> Run:
    """The handle on a run that exists, by its address or its name; without one, on the newest run that was
    started from this folder. A name that is not known here is looked up in the cluster, and the other way
    round, unless `on` says where.
    """
    check_argument("run", uri, str | None, "give a run's name or address: echelon.attach('fm')")
    return Run(*find(uri, _target(on, context, namespace)))


def runs(
    *, on: str | None = None, context: str | None = None, namespace: str | None = None
) -> Sequence[RunSummary]:
    """Every run there is, the newest first."""
    return engine_at(_target(on, context, namespace)).runs()


def _target(on: object, context: object, namespace: object) -> Target:
    given = {"on": on, "context": context, "namespace": namespace}
    for name, value in given.items():
        check_argument(name, value, str | None, f"give a text: {name}={_EXAMPLES[name]!r}")
    return Target(**given)  # type: ignore[arg-type]  # checked above


def _check_arguments(args: object, kwargs: object) -> None:
    """Refuse what Python would take apart: a text by its letters, a dict by its keys."""
    if isinstance(args, str | bytes):
        raise InvalidJob("args", args, "is one text", hint='give a list of words: args=["--epochs", "3"]')
    if isinstance(args, Mapping) or not isinstance(args, Iterable):
        hint = "a function takes args=[3], or kwargs={'epochs': 3}"
        raise InvalidJob("args", args, "is not a list", hint=hint)
    if not isinstance(kwargs, Mapping | None):
        raise InvalidJob("kwargs", kwargs, "is not a dict", hint="give names: kwargs={'epochs': 3}")


def _script(what: object, args: Sequence[object], kwargs: Mapping[str, object] | None) -> dict[str, object]:
    """The settings that a script and its arguments mean."""
    if kwargs:
        raise InvalidJob("kwargs", kwargs, "is for a function", hint='a script takes args=["--epochs", "3"]')
    if not isinstance(what, str | os.PathLike | None):
        hint = "pass the function itself, without calling it: echelon.run(train, args=[3])"
        kind = type(what).__name__
        raise InvalidJob(
            "echelon.run()", kind, "is the type of this value, no script and no function", hint=hint
        )
    found: dict[str, object] = {} if what is None else {"script": os.fspath(what)}
    return {**found, "args": [str(word) for word in args]} if args else found
