"""The settings of a run or a command, merged from every source: flags or keywords, `--set`, the job file, the
environment, and `[tool.echelon]` of the project; and the engine that a command means by them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.jobfile import read_job_file, read_overrides, read_tool_table
from echelon.model.settings import Settings, merge
from echelon.model.surroundings import Surroundings
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.base import Engine


@frozen
class Target:
    """Where runs are looked for: the engine's name, and for a cluster its context and namespace."""

    on: str | None = None
    context: str | None = None
    namespace: str | None = None


def find_surroundings() -> Surroundings:
    """This process's working folder and environment, as of now, and the cores that it may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Surroundings(folder=Path.cwd(), environment=dict(os.environ), cores=cores)


def gather(
    settings: Settings,
    surroundings: Surroundings,
    overrides: Sequence[str] = (),
    file: Path | Settings | None = None,
) -> Settings:
    """Merge every source, the stronger first: flags or keywords, `--set`, the job file (or what was read of
    one that is not ours), ECHELON_ON for where to run, `[tool.echelon]` of the script's project.
    """
    if overrides:
        settings = merge(settings, read_overrides(overrides))
    if file is not None:
        settings = merge(settings, file if isinstance(file, Settings) else read_job_file(file))
    if settings.on is None and (on := surroundings.environment.get("ECHELON_ON")):
        settings = replace(settings, on=on)  # type: ignore[arg-type]  # `choose_engine` refuses others
    folder = surroundings.folder
    beside = (folder / settings.script).parent if settings.script else folder
    return merge(settings, read_tool_table(beside))


def where_to_look(target: Target, surroundings: Surroundings) -> Target:
    """Where the runs of a folder are: as given, by ECHELON_ON, or as its project has it for `run`."""
    project = read_tool_table(surroundings.folder)
    return Target(
        on=target.on or surroundings.environment.get("ECHELON_ON") or project.on,
        context=target.context or project.context,
        namespace=target.namespace or project.namespace,
    )


def engine_at(target: Target, *, default: str = LOCAL) -> Engine:
    """The engine that a command without a run means: as given, by ECHELON_ON, or by the folder's project."""
    found = where_to_look(target, find_surroundings())
    return choose_engine(found.on, context=found.context, namespace=found.namespace, default=default)


def watched_at(target: Target) -> Engine:
    """The jobs of Kubeflow's controllers in a cluster."""
    found = where_to_look(target, find_surroundings())
    return choose_engine(CLUSTER, context=found.context, namespace=found.namespace, watched=True)
