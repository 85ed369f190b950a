"""`run -f --as native`: a Kubeflow job is submitted to its own controller as it is, and followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from echelon.errors import EchelonError, InvalidJob

if TYPE_CHECKING:
    from echelon.kubeflow import Manifest
    from echelon.model.settings import Settings

# Settings that such a job has.
_APPLY = ("on", "context", "namespace", "detach", "dry_run", "format", "job_kind")


def run_native(
    manifest: Manifest, given: Settings, *, raw: bool = False, show_rank: Sequence[int] = ()
) -> int:
    """Create the documents of the files, runtimes first and the job last, and show what its pods write until
    it has ended.
    """
    from echelon.cli.following import follow
    from echelon.cli.kubeflow.manifests import engine_for, tell_put
    from echelon.cli.printing import render
    from echelon.engines.abilities import required
    from echelon.engines.base import run_exists
    from echelon.engines.choose import CLUSTER, choose_engine
    from echelon.handle import Run
    from echelon.model.run import RunRef
    from echelon.model.settings import merge

    _check_flags(given)
    settings = merge(given, manifest.settings)
    name = manifest.document["metadata"].get("name")
    if name is None:
        raise InvalidJob("metadata.name", None, "is missing", hint="add name:")
    if settings.namespace != manifest.settings.namespace and manifest.settings.namespace is not None:
        hint = f"the file has namespace: {manifest.settings.namespace}"
        raise InvalidJob("namespace", settings.namespace, "is not the job's", hint=hint)
    engine = engine_for(settings)
    objects = required(engine.manifests, "Kubeflow controllers", engine.traits)
    dry_run = bool(settings.dry_run)
    address = f"{manifest.kind.lower()}/{name}"
    beside = [*manifest.runtimes, *manifest.objects]
    # A cluster that does not know the kind, or does not take the job, gets nothing of the rest either.
    *done, tried = objects.put([*beside, manifest.document], dry_run=True)
    if tried.done == "kept":
        raise run_exists(address, replaceable=False)
    if not dry_run:
        done = list(objects.put(beside)) if beside else []
    for note in tell_put(done, dry_run=dry_run):
        render.notice(note)
    if dry_run:
        render.notice(f"{tried.kind} {tried.name}: would be created")
        return 0
    try:
        (made,) = objects.put([manifest.document])
        if made.done == "kept":
            raise run_exists(address, replaceable=False)
    except EchelonError:
        objects.take_back(beside, done)
        if any(each.done != "kept" for each in done):
            render.notice("what was created and replaced of the files is undone")
        raise
    objects.check_taken_up(manifest.document, beside, done)
    watched = choose_engine(CLUSTER, context=settings.context, namespace=settings.namespace, watched=True)
    run = Run(watched.read(RunRef(engine=CLUSTER, name=address)).ref, watched)
    if settings.detach:
        render.submitted(run, settings.format or "text")
        return 0
    return follow.follow(run, run.job(), settings.format or "text", raw=raw, only=show_rank)


def _check_flags(given: Settings) -> None:
    from echelon.model.settings import NAMES

    for name in NAMES:
        value = getattr(given, name)
        if value is not None and name not in _APPLY:
            hint = "change the file, or leave --as native out"
            raise InvalidJob(name, value, "has no effect on a job that is submitted as it is", hint=hint)
