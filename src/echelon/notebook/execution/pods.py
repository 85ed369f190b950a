"""Steps as runs in a cluster: their folder is on a volume that all of them mount, code and secret travel.

::

    /pipeline/                    the pipeline run's folder on the volume, in every pod
        work/, values/            as on this machine
        state/                    what pods tell each other: the last cell of a step, what has travelled

Results of each step come home as those of any run. The variables stay on the volume; what is published of
them comes with the results, so that this machine knows where the next step finds them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from echelon.bundle import Bundle
from echelon.bundle.archive import pack
from echelon.bundle.project import find_project
from echelon.bundle.travel import notes_on_travel
from echelon.engines.abilities import Volumes, required
from echelon.engines.base import Engine
from echelon.errors import EchelonError
from echelon.model.copy import Progress
from echelon.model.meaning import to_job
from echelon.model.pods.template import merge_under
from echelon.model.settings import Settings
from echelon.notebook.analysis.cells import looks_above
from echelon.notebook.analysis.pipeline import Pipeline, Step
from echelon.notebook.beside.pod import SECRET
from echelon.notebook.execution.asking import job_of, pod_settings
from echelon.notebook.execution.places import Entries, Files, last_cell_in
from echelon.notebook.execution.program import program_files, specification
from echelon.notebook.kept.folder import PipelineFolder
from echelon.notebook.kept.volume import MOUNT, RUN_LABEL, VOLUME_LABEL, RunVolume, bound_to_one_node
from echelon.preparation.pods import settle_pods
from echelon.preparation.prepare import Prepared
from echelon.preparation.shipping import settle_remote

_LARGEST = 2**30  # bytes of code through the volume
PROGRAM = ".echelon-notebook"  # the folder among shipped code that holds what steps run
_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class InPods:
    """Steps are pods; `base` holds for all of them, `image` for those that name none."""

    pipeline: Pipeline
    folder: PipelineFolder
    engine: Engine
    base: Settings
    volume: RunVolume
    image: str | None = None
    restarts: int = 0
    tell: Callable[[str], object] = field(default=lambda _note: None)
    caches: bool = False

    def has_room(self, steps: Sequence[Step]) -> bool:
        """Where there is room in a cluster, it knows best itself."""
        return sum(step.size.workers for step in steps) <= _AT_ONCE

    @property
    def _volumes(self) -> Volumes:
        return required(self.engine.volumes, "volumes", self.engine.traits)

    def open(self) -> None:
        """Pack what travels, which is the same for every step, and tell what the user should know of it."""
        for note in (*notes_on_travel(self.bundle), *self.bundle.notes):
            self.tell(note)
        jobs = [job_of(pod_settings(each, self.base, self.image)) for each in self.pipeline.steps]
        for note in dict.fromkeys(note for job in jobs for note in self.engine.notes(job)):
            self.tell(note)

    @cached_property
    def bundle(self) -> Bundle:
        """The notebook's project with what the steps run."""
        notebook = self.pipeline.notebook.path.resolve()
        project = find_project(notebook)
        files = {f"{PROGRAM}/{name}": content for name, content in program_files().items()}
        for step in self.pipeline.steps:
            told = {
                **specification(self.pipeline, step, self.folder, {}),
                "folder": MOUNT,
                "notebook": notebook.name,
                "search": [],
                "shipped": notebook.parent.relative_to(project).as_posix(),
                "above": looks_above(self.pipeline.notebook) and notebook.parent != project,
            }
            files[f"{PROGRAM}/{step.name}.json"] = json.dumps(told).encode()
        return pack(project, include=self.base.include or (), extra=files, limit=_LARGEST)

    def beside(self) -> str:
        """Nothing is taken over here."""
        return ""

    def runs_with(self, step: Step) -> str:
        """The image."""
        return self.settings_of(step).image or ""

    def settings_of(self, step: Step) -> Settings:
        """What a step's run is asked for, but for its name and what it runs."""
        settings = pod_settings(step, self.base, self.image)
        bound = bound_to_one_node(self.folder.name) if self.volume.one_node else {}
        code = self.engine.traits.code_limit
        known = {VOLUME_LABEL: self.volume.uid} if self.volume.uid else {}
        large = code is not None and len(self.bundle.data) > code and self.base.code_volume is None
        return replace(
            settings,
            mount=[*(settings.mount or ()), f"{self.volume}:{MOUNT}"],
            label={**(settings.label or {}), RUN_LABEL: self.folder.name, **known},
            template=merge_under(settings.template or {}, bound) or None,
            code_volume=f"{self.volume}/code" if large else self.base.code_volume,
        )

    def prepare(self, step: Step, run: str, entries: Entries) -> Prepared:
        """A script among the shipped code; the rest of its specification is an argument."""
        # The token is of this start: servers end by a file of that name, and not by an earlier start's.
        told = {"inputs": {name: dict(entry) for name, entry in entries.items()}, "token": uuid.uuid4().hex}
        settings = self.settings_of(step)
        settings = replace(
            settings,
            name=run,
            script=f"{{code}}/{PROGRAM}/step.py",
            args=[f"{step.name}.json", json.dumps(told)],
            results=str(self.folder.results(step.name).absolute()),
            restarts=self.restarts or None,
            secret=[*(settings.secret or ()), f"{SECRET}=@{self.folder.secret.absolute()}"],
        )
        job = settle_pods(settle_remote(to_job(settings, name=run), settings), settings, Path.cwd())
        return Prepared(job=replace(job, cwd="{code}"), bundle=self.bundle)

    def files(self) -> Files:
        """They are on the volume."""
        return {}

    def settle(self, step: Step) -> None:
        """Put what the step says that it has published to where it is looked for."""
        try:
            content = (self.folder.results(step.name) / "published.json").read_bytes()
        except OSError:
            return
        target = self.folder.values / step.name
        target.mkdir(exist_ok=True)
        (target / "published.json").write_bytes(content)

    def last_cell(self, step: Step) -> int | None:
        """By the results; of a pod that was killed with all that was in it, by the volume."""
        found = last_cell_in(self.folder.results(step.name) / "at.json")
        if found is not None:
            return found
        name = f"at-{step.name}.json"
        self.folder.program.mkdir(exist_ok=True)
        try:
            self._fetch(f"state/{name}", self.folder.program, content=False, tell=lambda _text: None)
        except EchelonError:
            return None
        return last_cell_in(self.folder.program / name)

    def close(self) -> str:
        """Bring the working folder home."""
        try:
            self._fetch("work", self.folder.work, content=True, tell=self.tell)
        except EchelonError as error:
            return f"the files of the steps stay on {self.volume}/work: {error}"
        return ""

    def _fetch(self, path: str, to: Path, *, content: bool, tell: Callable[[str], object]) -> None:
        like_first = job_of(self.settings_of(self.pipeline.steps[0]))  # as the pod that copies is
        source = f"{self.volume.path}/{path}"
        self._volumes.fetch(self.volume.claim, source, str(to), like_first.pod, _Quiet(tell), content=content)


@dataclass(frozen=True, slots=True)
class _Quiet:
    """Watches a copy, and tells what it waits for."""

    tell: Callable[[str], object]

    def update(self, now: Progress) -> None:
        """How far it is: not shown."""

    def notice(self, text: str) -> None:
        """What it waits for."""
        self.tell(text)


def own_image(engine: Engine, environment: Mapping[str, str] | None = None) -> str | None:
    """The image of the pod that this process is in, as when the notebook is open in the cluster; None outside
    of one."""
    told = os.environ if environment is None else environment
    if "KUBERNETES_SERVICE_HOST" not in told or "HOSTNAME" not in told or engine.manifests is None:
        return None
    try:
        pod = engine.manifests.find("Pod", told["HOSTNAME"])
    except EchelonError:
        return None
    containers = ((pod or {}).get("spec") or {}).get("containers") or ()
    return str(containers[0].get("image") or "") or None if containers else None
