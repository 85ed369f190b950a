"""`echelon run -f` and `echelon convert` with the YAML of a Kubeflow job: it becomes a run of this machine or
of a cluster, or, with `--as native`, is submitted as it is, and its controller makes the pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.options import MAP, setting_options
from echelon.errors import EchelonError, InvalidJob

if TYPE_CHECKING:
    from echelon.engines.abilities import Put
    from echelon.engines.base import Engine
    from echelon.kubeflow import Here, Manifest
    from echelon.model.engine.traits import Traits
    from echelon.model.job import Job
    from echelon.model.settings import Settings
    from echelon.model.surroundings import Surroundings
    from echelon.preparation.prepare import Prepared
    from echelon.submit import Beside


_SCRIPT = 1024 * 1024  # characters of a script that are looked at
_CONVERT_HELP = """Print a Kubeflow job as a job file.

PyTorchJob, TFJob, JAXJob, XGBoostJob, MPIJob and TrainJob are read.

What echelon's own workers do not honour comes first, as comments. With --on local, it is the job file for
this machine, with the paths that --map gives.

\b
Examples:
  echelon convert pytorchjob.yaml > job.yaml
  echelon convert --on local --map /data=./data pytorchjob.yaml
"""
# Settings that a job has which is submitted as it is.
_APPLY = ("on", "context", "namespace", "detach", "dry_run", "format", "job_kind")


def read_kubeflow(
    files: Sequence[Path], given: Settings, surroundings: Surroundings, *, native: bool = False
) -> Manifest | None:
    """The Kubeflow job in files; None where the only one holds none. A runtime that is not in them is
    looked up in the cluster, and a command that is not there in the image, unless its own controller starts
    it (`native`).
    """
    from echelon.kubeflow import RUNTIME_RESOURCES, Outside, read_manifest
    from echelon.preparation.sources import gather

    def find_runtime(kind: str, name: str) -> Mapping[str, Any] | None:
        objects = engine_for(gather(given, surroundings)).manifests
        return None if objects is None else objects.find(RUNTIME_RESOURCES[kind], name)

    manifest = read_manifest(
        files, Outside(find_runtime=find_runtime, find_start=_any_start if native else _find_start)
    )
    if manifest is not None and given.script is not None:
        raise InvalidJob(
            "script",
            given.script,
            f"is not for {files[0]}, which says what its containers run",
            hint="leave it out; words after -- are arguments instead of the file's",
        )
    return manifest


def _any_start(_image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("the image's entrypoint",), ()


def _find_start(image: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """What an image starts, by its registry; None where that does not tell."""
    from echelon.cli.printing.render import notice, notice_if_slow
    from echelon.errors import EchelonError
    from echelon.image.starting import read_start

    try:
        with notice_if_slow(f"asking the registry what {image} starts"):
            start = read_start(image)
    except EchelonError as error:
        notice(error.message)
        return None
    return start.entrypoint, start.args


def engine_for(settings: Settings) -> Engine:
    """A Kubeflow job goes to a cluster, unless the user says otherwise."""
    from echelon.engines.choose import CLUSTER, choose_engine

    return choose_engine(settings.on, context=settings.context, namespace=settings.namespace, default=CLUSTER)


def settle_place(
    manifest: Manifest, settings: Settings, engine: Engine, maps: tuple[str, ...], surroundings: Surroundings
) -> Here:
    """The settings for the place where the job is to run, with all that the user should know of it."""
    from echelon.kubeflow import Here, on_this_machine, parse_maps

    if engine.traits.remote:
        if maps:
            hint = "pods have the volumes of the manifest; --on local runs it here"
            raise InvalidJob("map", maps[0], "is for this machine", hint=hint)
        return Here(settings=settings, notes=_not_honoured(manifest))
    places = parse_maps(maps, surroundings.folder)
    here = on_this_machine(
        manifest, settings, places, surroundings.folder, lambda path: Path(path).exists(), _read_script
    )
    return replace(here, notes=(*_not_honoured(manifest), *here.notes))


def _read_script(path: str) -> str:
    """What is in a script; "" where it cannot be read, or is too long to be written by hand."""
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(_SCRIPT)
    except OSError:
        return ""


def _not_honoured(manifest: Manifest) -> tuple[str, ...]:
    return tuple(f"not honoured: {note}" for note in manifest.notes)


def mark(prepared: Prepared, manifest: Manifest, traits: Traits) -> Prepared:
    """The same job, which remembers what kind it was, and whose pods have Kubeflow's labels."""
    from echelon.kubeflow.labels import with_kind, with_labels

    job = with_kind(prepared.job, manifest.kind, manifest.downloads)
    return replace(prepared, job=with_labels(job, manifest.document) if traits.remote else job)


def objects_beside(
    manifest: Manifest, job: Job, engine: Engine, tell: Callable[[str], object], *, dry_run: bool
) -> Beside | None:
    """The other documents of the file, to be brought into the cluster when the job's name is taken: they may
    be those of a run that has it. That the cluster takes them, and the job could run there, is known before;
    `tell` gets what becomes of each. Only a namespace is made at once, which is to have the name.
    """
    from echelon.admission import find_plan
    from echelon.engines.abilities import required
    from echelon.submit import Beside

    if not manifest.objects or not engine.traits.remote:
        return None
    find_plan(job, engine)
    named = frozenset((str(each["kind"]), str(each["metadata"]["name"])) for each in manifest.objects)
    engine.check(job, named)
    objects = required(engine.manifests, "objects", engine.traits)
    tried = objects.put(manifest.objects, dry_run=True)

    def put(chosen: Sequence[Mapping[str, Any]]) -> None:
        for note in tell_put(objects.put(chosen) if chosen else (), dry_run=False):
            tell(note)

    if dry_run:
        for note in tell_put(tried, dry_run=True):
            tell(note)
        return None
    put([each for each in manifest.objects if each["kind"] == "Namespace"])
    others = [each for each in manifest.objects if each["kind"] != "Namespace"]
    return Beside(named=named, bring=lambda: put(others))


def tell_put(done: Iterable[Put], *, dry_run: bool) -> list[str]:
    """What became of the objects, for the user."""
    words = {
        "created": "would be created" if dry_run else "created",
        "changed": "its content would be replaced" if dry_run else "its content is replaced",
        "kept": "is there already, and stays as it is",
    }
    return [f"{each.kind} {each.name}: {words[each.done]}" for each in done]


@click.command(
    "convert",
    help=_CONVERT_HELP,
    short_help="Print a Kubeflow job as a job file.",
    params=[
        MAP,
        *setting_options(everywhere=True),
        click.Argument(["files"], nargs=-1, required=True, type=click.Path(path_type=Path, readable=False)),
    ],
)
def convert(files: tuple[Path, ...], maps: tuple[str, ...], **options: Any) -> int:
    """Read, settle the place, write."""
    from echelon.jobfile import settings_from
    from echelon.jobfile.writing import job_file_data, write_job_file
    from echelon.model.job import validate
    from echelon.model.meaning import to_job
    from echelon.model.settings import merge
    from echelon.preparation.sources import find_surroundings

    given = settings_from(
        {name: value for name, value in options.items() if value is not None and name != "format"},
        source="the command line",
    )
    surroundings = find_surroundings()
    manifest = read_kubeflow(files, given, surroundings)
    if manifest is None:
        raise InvalidJob(
            "file", str(files[0]), "holds no Kubeflow job", hint="a job file needs no conversion"
        )
    settings = merge(given, manifest.settings)
    engine = engine_for(settings)
    here = settle_place(manifest, settings, engine, maps, surroundings)
    if here.files:
        hint = "--map its path to a folder of this machine"
        raise InvalidJob("volumeMounts", next(iter(here.files)), "is in a ConfigMap of the file", hint=hint)
    settings = replace(here.settings, on="k8s" if engine.traits.remote else "local")
    validate(to_job(settings, name="run"))
    other = [f"{each['kind']} {each['metadata']['name']}" for each in manifest.objects]
    notes = list(here.notes)
    if other and engine.traits.remote:
        notes.append(f"not in a job file: {', '.join(other)}; `kubectl apply` makes them, and `run -f` does")
    if options["format"] == "json":
        from echelon.cli.printing import render

        for note in notes:
            render.notice(note)
        render.data(job_file_data(settings), "json")
        return 0
    for note in notes:
        click.echo(f"# {note}")
    click.echo(write_job_file(settings), nl=False)
    return 0


def run_native(
    manifest: Manifest, given: Settings, *, raw: bool = False, show_rank: Sequence[int] = ()
) -> int:
    """Create the documents of the files, runtimes first and the job last, and show what its pods write until
    it has ended.
    """
    from echelon.cli.following import follow
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
