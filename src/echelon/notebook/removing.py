"""Pipeline runs by name: their steps, and the volume that holds what they handed on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from echelon.engines.base import Engine, RunDamaged
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.errors import RunExists, StateTrouble, Unreachable
from echelon.finding import look_elsewhere
from echelon.handle import Run
from echelon.model.engine.volume import Volume
from echelon.model.job import PIPELINE
from echelon.model.run import parse_uri
from echelon.model.status import RunSummary
from echelon.model.step_names import cut_names
from echelon.notebook.kept.noted import Noted, forget_pipeline, noted
from echelon.notebook.kept.volume import MOUNT, RUN_LABEL, VOLUME_LABEL
from echelon.preparation.sources import Target, find_surroundings, where_to_look
from echelon.values import frozen

Tell = Callable[[str], object]


@frozen
class Found:
    """A pipeline run that something is left of: its steps, and where."""

    pipeline: str
    engine: Engine
    rows: tuple[RunSummary, ...]  # of its steps, as `ps` shows them, the first to start first
    noted: Noted | None = None  # where this machine has started it

    @property
    def steps(self) -> tuple[Run, ...]:
        """The runs of its steps."""
        return tuple(Run(parse_uri(row.uri, LOCAL), self.engine) for row in self.rows)


@frozen
class Holding:
    """A pipeline run, and the volume that holds its variables, as NAME/path; "" where none is known. `made`
    is the uid of one that was made for it.
    """

    pipeline: str
    engine: Engine
    volume: str = ""
    made: str = ""


def find_pipeline(name: str, target: Target, *, elsewhere: bool = True) -> Found | None:
    """The user's pipeline run of that name, which may be the uncut one: in the default place and, unless one
    is named or `elsewhere` is False, in the other.
    """
    looked = where_to_look(target, find_surroundings())
    first = looked.on or LOCAL
    other = CLUSTER if first == LOCAL else LOCAL

    def look(place: str) -> Found | None:
        engine = choose_engine(place, context=looked.context, namespace=looked.namespace)
        return next(filter(None, (_named(each, engine) for each in (name, *cut_names(name)))), None)

    here = look(first)
    if here is not None or target.on is not None or not elsewhere:
        return here
    with suppress(Unreachable):
        return look_elsewhere(lambda: look(other))
    return None


def _named(name: str, engine: Engine) -> Found | None:
    rows, known = steps_of(engine, name), noted(name)
    if known is not None and known.record.on != (engine.traits.place if engine.traits.remote else ""):
        known = None  # another one, elsewhere
    if not rows and known is None and not _labelled(engine, name):
        return None
    return Found(pipeline=name, engine=engine, rows=rows, noted=known)


def steps_of(engine: Engine, name: str) -> tuple[RunSummary, ...]:
    """The user's runs that are steps of a pipeline run, the first to start first."""
    rows = [row for row in engine.runs() if row.pipeline == name and row.own]
    return tuple(sorted(rows, key=lambda row: row.created))


def holding_of(run: Run, engine: Engine) -> Holding | None:
    """The pipeline run that a run is a step of; None if it is of none."""
    try:
        job = run.job()
    except RunDamaged:
        return None
    if PIPELINE not in job.env:
        return None
    volume = next((each.source for each in job.pod.mounts if each.path == MOUNT), "")
    made = job.pod.labels.get(VOLUME_LABEL, "")
    return Holding(pipeline=job.env[PIPELINE], engine=engine, volume=volume, made=made)


def forget_pipelines(held: Iterable[Holding], gone: Collection[str]) -> list[str]:
    """Forget pipeline runs of which no step is left; returns those of which no run was removed: all came from
    the cache, say. `gone` are the runs that were removed just now.
    """
    alone = []
    for name, engine in {each.pipeline: each.engine for each in held}.items():
        known = noted(name)
        if known is None or known.held or steps_of(engine, name):
            continue
        if not any(step.run in gone for step in known.record.steps.values()):
            alone.append(name)
        forget_pipeline(name)
    return alone


def check_removable(found: Found) -> None:
    """Raise if a command runs steps of it: those that have ended are not taken from under it."""
    if found.noted is not None and found.noted.held:
        name = found.pipeline
        raise RunExists(f"{name!r} goes on", hint=f"`echelon stop {name}` stops it")


def remove_volumes(held: Iterable[Holding], tell: Tell) -> None:
    """Remove the volumes that were made for pipeline runs of which no step is left; tell of all others."""
    pipelines: dict[str, list[Holding]] = {}
    for each in held:
        pipelines.setdefault(each.pipeline, []).append(each)
    for name, holdings in pipelines.items():
        engine = holdings[0].engine
        if engine.volumes is None or any(row.pipeline == name for row in engine.runs()):
            continue
        known, told = _made_uids(name, holdings), set()
        for volume in _labelled(engine, name):
            told.add(volume.name)
            if (files := _only_copy(name)) is not None:
                hint = f"`echelon cp {files} DIR` copies them, `echelon volume rm {volume.name}` deletes it"
                tell(f"volume {volume.name} stays: files of the steps of {name} are there alone; {hint}")
                continue
            if volume.uid not in known:
                hint = f"`echelon volume rm {volume.name}` removes it"
                tell(f"volume {volume.name} stays: nothing shows that it was made for {name}; {hint}")
                continue
            try:
                engine.volumes.remove(volume.name, volume.uid)
                tell(f"volume {volume.name}, which was made for {name}, is removed")
            except StateTrouble as error:
                tell(f"volume {volume.name}, which was made for {name}, stays: {error}")
        for place in {each.volume for each in holdings} - {""}:
            if place.partition("/")[0] not in told:
                tell(f"variables and files of {name} stay on pvc:{place}")


def _only_copy(name: str) -> str | None:
    """Where the files of a pipeline run's steps are, if they were never brought home: the command that would
    have done it was killed, or could not.
    """
    known = noted(name)
    if known is None or (known.record.over and not known.record.missing):
        return None
    return f"{known.record.volume}/work"


def _made_uids(name: str, holdings: Iterable[Holding]) -> set[str]:
    """The uid of the volume that was made for a pipeline run: as this machine has noted it, or, where it has
    not, as the runs of its steps have it. By its name and label alone a volume may be anybody's.
    """
    known = noted(name)
    if known is not None and known.record.volume is not None and known.record.volume.uid:
        return {known.record.volume.uid}
    return {each.made for each in holdings} - {""}


def _labelled(engine: Engine, name: str) -> list[Volume]:
    """The volume that may have been made for a pipeline run: it has the run's label and its name."""
    if engine.volumes is None:
        return []
    found = engine.volumes.list_all()
    return [each for each in found if each.name == name and each.labels.get(RUN_LABEL) == name]
