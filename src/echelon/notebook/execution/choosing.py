"""From the engine that a user chose to the place where the steps of a notebook run. What cannot work is
refused before anything exists."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from echelon.admission import find_plan
from echelon.engines.abilities import required
from echelon.engines.base import Engine
from echelon.engines.choose import LOCAL, choose_engine
from echelon.errors import InvalidJob, Unplaceable
from echelon.model.settings import Settings
from echelon.notebook.analysis.pipeline import Pipeline, Step
from echelon.notebook.execution.asking import job_of, local_settings, pod_settings
from echelon.notebook.execution.places import OnThisMachine, StepHost, python_of
from echelon.notebook.execution.pods import InPods, own_image
from echelon.notebook.kept.folder import PipelineFolder, PipelineOptions, PipelineRecord
from echelon.notebook.kept.volume import RunVolume, VolumeRequest, check_one_node, open_volume, wanted_volume
from echelon.preparation.pods import CPUS, MEMORY, check_requirements
from echelon.values import frozen

Tell = Callable[[str], object]


class Choice(Protocol):
    """A place that a notebook can run in, before its pipeline run has a folder."""

    @property
    def image(self) -> str | None:
        """The image of steps that name none; None is the default."""

    def names_taken(self) -> Iterable[str]:
        """Names that a new pipeline run cannot have."""

    def open_volume(self, run: str, *, dry_run: bool = False) -> RunVolume | None:
        """What holds the values of a new pipeline run, where that is not a folder of this machine; made,
        unless it exists."""

    def settings_of(self, step: Step) -> Settings:
        """What a step asks for there."""

    def place(self, pipeline: Pipeline, folder: PipelineFolder, volume: RunVolume | None) -> StepHost:
        """The place for one pipeline run."""


def choose_place(pipeline: Pipeline, engine: Engine, options: PipelineOptions, tell: Tell) -> Choice:
    """The place that the engine means; raises for what a step asks for and cannot have."""
    settings = options.settings
    check_requirements(settings.requirements, Path.cwd())
    if not engine.traits.remote:
        for step in pipeline.steps:
            local_settings(step, engine)
        python_of(settings.python)
        return _Here(engine=engine, options=options)
    about = pipeline.notebook.about
    # What was typed is meant for this run; what the notebook names was meant for another cluster, perhaps.
    image = options.image or about.image or own_image(engine) or settings.image
    mounts = [*(settings.mount or ()), *_mounts(pipeline, tell)]
    base = replace(settings, mount=mounts or None, restarts=None)
    for step in pipeline.steps:
        job_of(pod_settings(step, base, image))
        if options.cache or step.options.cache:
            tell(f"step {step.name}: results of earlier runs are not taken over in a cluster; it runs")
    wanted = wanted_volume(options.volume, options.volume_mode, about)
    return _There(engine=engine, options=options, base=base, image=image, wanted=wanted, tell=tell)


def without_gpus(pipeline: Pipeline) -> Pipeline:
    """The same pipeline for a place that has no GPUs: none of its steps asks for one. Pure."""
    steps = tuple(
        replace(
            step,
            options=replace(
                step.options,
                settings=replace(step.options.settings, gpus=None, resource=_without_gpus(step)),
            ),
        )
        for step in pipeline.steps
    )
    return replace(pipeline, steps=steps)


def _without_gpus(step: Step) -> dict[str, int] | None:
    """The other resources of a step."""
    asked = step.options.settings.resource or {}
    return {name: count for name, count in asked.items() if "gpu" not in name} or None


def check_gpus(choice: Choice, steps: Iterable[Step], engine: Engine) -> None:
    """Raise if a step asks for GPUs that there never are: before those before it have run for hours."""
    for step in steps:
        if step.gpus:
            try:
                find_plan(job_of(choice.settings_of(step)), engine)
            except Unplaceable as error:
                hint = (
                    "the tags gpus:N and workers:N of its cells say how many; `echelon top` shows the GPUs; "
                    "--no-gpus runs it without"
                )
                raise Unplaceable(f"step {step.name}: {error.message}", hint=hint) from None


def check_same_place(record: PipelineRecord, engine: Engine, again: str) -> None:
    """Raise if a pipeline run is to be continued elsewhere than where its values are, or they are gone."""
    if (record.volume is not None) != engine.traits.remote:
        where = record.on or "this machine"
        hint = "leave --on k8s out" if record.volume is None else "add --on k8s"
        raise InvalidJob(
            "from",
            again,
            f"is of {record.name}, whose variables are on {where}",
            hint=f"{hint}, or run it anew",
        )
    if record.volume is not None:
        volumes = required(engine.volumes, "volumes", engine.traits)
        if record.volume.claim not in [each.name for each in volumes.list_all()]:
            raise InvalidJob(
                "from",
                again,
                f"is of {record.name}, whose variables were on {record.volume}: that volume is gone",
                hint="run the notebook anew, without --from and --only",
            )


@frozen
class _Here:
    engine: Engine
    options: PipelineOptions
    image: str | None = None

    def names_taken(self) -> Iterable[str]:
        return self.engine.names()

    def settings_of(self, step: Step) -> Settings:
        return local_settings(step, self.engine)

    def open_volume(self, run: str, *, dry_run: bool = False) -> None:  # noqa: ARG002 - the folder is enough
        return None

    def place(self, pipeline: Pipeline, folder: PipelineFolder, volume: RunVolume | None) -> StepHost:  # noqa: ARG002 - as above
        python = python_of(self.options.settings.python)
        memory = max((node.memory for node in self.engine.cluster(gpus=False).nodes), default=math.inf)
        return OnThisMachine(
            pipeline=pipeline,
            folder=folder,
            engine=self.engine,
            python=python,
            base=self.options.settings,
            restarts=self.options.settings.restarts or 0,
            memory=memory,
        )


@frozen
class _There:
    engine: Engine
    options: PipelineOptions
    base: Settings
    image: str | None
    wanted: VolumeRequest
    tell: Tell

    def names_taken(self) -> Iterable[str]:
        volumes = required(self.engine.volumes, "volumes", self.engine.traits)
        return [
            *self.engine.names(),
            *choose_engine(LOCAL).names(),  # which has the pipeline runs themselves
            *(each.name for each in volumes.list_all()),
        ]

    def settings_of(self, step: Step) -> Settings:
        return pod_settings(step, self.base, self.image)

    def open_volume(self, run: str, *, dry_run: bool = False) -> RunVolume:
        volumes = required(self.engine.volumes, "volumes", self.engine.traits)
        return open_volume(self.wanted, run, volumes, dry_run=dry_run)

    def place(self, pipeline: Pipeline, folder: PipelineFolder, volume: RunVolume | None) -> StepHost:
        assert volume is not None
        place = InPods(
            pipeline=pipeline,
            folder=folder,
            engine=self.engine,
            base=self.base,
            volume=volume,
            image=self.image,
            restarts=self.options.settings.restarts or 0,
            tell=self.tell,
        )
        if volume.one_node:
            self.tell(
                f"{volume} is ReadWriteOnce: steps that run at the same time are on one node; --volume "
                "new:10Gi@CLASS with a class that has ReadWriteMany lets them be on several"
            )
            cluster = self.engine.cluster()
            for step in pipeline.steps:
                need = job_of(self.settings_of(step)).resources
                cpus, memory = need.cpus or CPUS, need.memory or MEMORY
                check_one_node(step, cpus.request, memory.request, str(volume), cluster)
        return place


def _mounts(pipeline: Pipeline, tell: Tell) -> Iterator[str]:
    """The volumes that the notebook names, as Kale writes it."""
    for each in pipeline.notebook.about.volumes:
        if each.kind == "pvc" and each.name and each.mount_point:
            yield f"pvc:{each.name}:{each.mount_point}"
        elif each.name:
            tell(f"volume {each.name} of the notebook is {each.kind or 'of no kind'}, and is left out")
