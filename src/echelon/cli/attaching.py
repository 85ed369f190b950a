"""From the names that commands are given to runs; a pipeline's name stands for all of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from echelon.cli.options import find_engine, find_run, target_of

if TYPE_CHECKING:
    from echelon.engines.base import Engine
    from echelon.errors import EchelonError, UnknownRun
    from echelon.handle import Run
    from echelon.notebook.removing import Found, Holding


def find_run_or_steps(name: str | None, target: Mapping[str, str | None]) -> Run | Found:
    """The run that a command means, or the steps of the pipeline that has that name; raises UnknownRun."""
    from echelon.errors import UnknownRun

    try:
        return find_run(name, target)
    except UnknownRun as error:
        found = _find_pipeline(name, target, error) if name is not None else None
        if found is None or not (found.rows or found.noted):
            raise
        return found


def attach_all(
    names: tuple[str, ...],
    target: Mapping[str, str | None],
    held: list[Holding] | None = None,
    stopping: list[Found] | None = None,
) -> tuple[list[Run], EchelonError | None]:
    """The runs of those names, and what is wrong with the first that is none: the others are not kept waiting
    for it. The name of a notebook's pipeline stands for all of its steps. `held`, of a command that removes
    them, gets the pipelines; so does `stopping`, of one that stops them, and no further step of those starts.
    """
    from echelon.errors import EchelonError, UnknownRun
    from echelon.handle import Run

    handles: list[Run] = []
    trouble: EchelonError | None = None
    for name in dict.fromkeys(names):
        try:
            ref, engine = find_engine(name, target)
            handles.append(Run(ref, engine))
            if held is not None:
                held += _holding(handles[-1], engine)
        except UnknownRun as error:
            found = _find_pipeline(name, target, error)
            if found is None:
                trouble = trouble or error
                continue
            if stopping is not None:
                from echelon.cli.printing.render import notice
                from echelon.notebook.following import start_no_more

                found = start_no_more(found, notice)
                stopping.append(found)
            if held is not None:
                from echelon.notebook.removing import Holding, check_removable

                try:
                    check_removable(found)
                except EchelonError as goes_on:
                    trouble = trouble or goes_on
                    continue
                held.append(Holding(pipeline=found.pipeline, engine=found.engine))
                for step in found.steps:
                    held += _holding(step, found.engine)
            handles += found.steps
        except EchelonError as error:
            trouble = trouble or error
    return handles, trouble


def _find_pipeline(name: str, target: Mapping[str, str | None], unknown: UnknownRun) -> Found | None:
    """The pipeline of a name that no run has; a place that did not answer is not asked again."""
    from echelon.finding import UnknownHere
    from echelon.notebook.removing import find_pipeline

    return find_pipeline(name, target_of(target), elsewhere=not isinstance(unknown, UnknownHere))


def _holding(run: Run, engine: Engine) -> list[Holding]:
    """The pipeline that a run is a step of, if it is one."""
    from echelon.notebook.removing import holding_of

    found = holding_of(run, engine)
    return [] if found is None else [found]
