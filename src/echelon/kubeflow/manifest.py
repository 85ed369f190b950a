"""A Kubeflow job as it was read: the settings that mean the same, and what they cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from echelon.kubeflow.volumes import Volume
from echelon.model.settings import Settings
from echelon.values import frozen


@frozen
class Manifest:
    """A Kubeflow job for echelon's own workers.

    `document` is the job as it is written. `notes` are the wishes that these workers do not honour, each with
    its path in the document. `objects` are the other documents of its files, which have to be in the cluster
    before the run; `runtimes` are those of TrainJobs, which only Trainer needs there. `volumes`, `workdir`
    and `unknown_env` are what pods have and this machine may not. `downloads` are what a TrainJob's
    initializers would fetch before the start, which echelon does not do."""

    kind: str
    settings: Settings
    document: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    objects: tuple[Mapping[str, Any], ...] = ()
    runtimes: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Volume, ...] = ()
    workdir: str | None = None
    unknown_env: tuple[str, ...] = field(default=())
    downloads: tuple[str, ...] = ()
