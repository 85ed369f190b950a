"""What changes when a run's workers are not on this machine: code travels, and outputs may stay behind."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from shlex import quote
from typing import TYPE_CHECKING

from echelon.errors import InvalidJob
from echelon.model.engine.traits import Traits
from echelon.model.job import Job
from echelon.model.pods.pod import IMAGE, parse_keep
from echelon.model.settings import Settings

if TYPE_CHECKING:
    from echelon.bundle import Bundle

_OUTPUT_NAME = re.compile(r"out|save|checkpoint|ckpt|log|model|result|tensorboard|export|dump", re.IGNORECASE)
_OUTPUT_PATH = re.compile(
    r"[/_.-](?:checkpoints?|ckpts?|outputs?|results?|saved?)(?:$|[/_.-])", re.IGNORECASE
)
_PROGRAMS = (".py", ".sh", ".yaml", ".yml", ".json", ".toml")
_LARGEST_CODE = 2**30  # bytes through a volume: it is held in memory on the way
_NOT_A_PATH = re.compile(r"^-?\d|^[\w-]+$|://")


def settle_remote(job: Job, settings: Settings) -> Job:
    """The same job for remote workers: its code travels or lies on a volume, and Python is the image's."""
    held = settings.linger is not None or (settings.keep is not None and parse_keep(settings.keep)[1] == 0)
    if settings.detach and settings.output is None and job.pod.keeper is None and not held:
        raise InvalidJob(
            "detach",
            "-d",
            "leaves no command to fetch the results from the workers",
            hint="leave --keep 0 out, so that a small pod keeps them; or --output pvc:NAME or new:10Gi keeps "
            "them on a volume, and --keep 1h:0 the workers, so much longer for `echelon get`",
        )
    in_image = settings.code == IMAGE
    if job.pod.code is not None or in_image:
        if job.pod.code_volume is not None:
            hint = "--code runs what lies there already, --code-volume ships the project: choose"
            raise InvalidJob("code_volume", settings.code_volume, "has nothing to ship", hint=hint)
        return replace(job, snapshot=False, cwd="." if in_image else "{code}")
    return replace(job, snapshot=True)


def code_limit(job: Job, traits: Traits) -> int | None:
    """How many bytes of code, compressed, can travel."""
    if traits.remote and job.pod.code_volume is not None:
        return _LARGEST_CODE
    return traits.sent_limit or traits.code_limit


def is_sent(job: Job, bundle: Bundle | None, traits: Traits) -> bool:
    """Whether the code is too large for the run's record: the command that submits it sends it."""
    if bundle is None or job.pod.code_volume is not None or traits.code_limit is None:
        return False
    return len(bundle.data) > traits.code_limit


def check_sending(job: Job, bundle: Bundle | None, traits: Traits) -> None:
    """Raise if the code would have to be sent, and the run may need it again after that."""
    if bundle is not None and job.restarts and is_sent(job, bundle, traits):
        from echelon.bundle.travel import cannot_send

        raise cannot_send(bundle, "workers that replace others would need it again (--restarts)")


def check_waiting(job: Job, bundle: Bundle | None, traits: Traits, reason: str) -> None:
    """Raise if the code would have to be sent, and the run must wait, for `reason`: it may be started by
    another command then.
    """
    if bundle is not None and is_sent(job, bundle, traits):
        from echelon.bundle.travel import cannot_send

        raise cannot_send(bundle, f"this run would be queued: {reason}")


def paths_that_stay(job: Job) -> Iterator[str]:
    """Output paths among the arguments that are not fetched: no {output}, no mount, no --collect."""
    kept = [PurePosixPath(path) for path in (*_mounted(job), *job.pod.collect)]
    for value in dict.fromkeys(value for words in _command_lines(job) for value in _outputs(words)):
        path = PurePosixPath(value)
        if not any(path == place or place in path.parents for place in kept):
            yield value


def _command_lines(job: Job) -> Iterator[list[str]]:
    """The words of what the workers run, those of every role too; the lines of a shell are taken apart."""
    for command, args in ((job.command, job.args), *((role.command, role.args) for role in job.roles)):
        yield [word for given in (*command, *(args or ())) for word in _words(given)]


def _words(given: str) -> list[str]:
    if not re.search(r"\s", given):
        return [given]
    line = given.replace(";", " ; ")
    try:
        return shlex.split(line)
    except ValueError:  # a quotation mark that stands alone
        return line.split()


def _outputs(words: Sequence[str]) -> Iterator[str]:
    """Paths that are outputs by the name of their option, or by their own."""
    for name, value in _options(words):
        if "{output}" not in value and _OUTPUT_NAME.search(name) and not _NOT_A_PATH.search(value):
            yield value
    for word in words:
        value = word.partition("=")[2] if word.startswith("-") else word
        if value.startswith("/") and _OUTPUT_PATH.search(value) and not value.endswith(_PROGRAMS):
            yield value


def _mounted(job: Job) -> Iterator[str]:
    """Where the pods have volumes that outlive them."""
    yield from (mount.path for mount in job.pod.mounts if mount.kind != "emptydir")
    for template in (job.pod.template, *(role.template for role in job.roles)):
        spec = template.get("spec") or {}
        scratch = {each.get("name") for each in spec.get("volumes") or () if "emptyDir" in each}
        for container in spec.get("containers") or ():
            mounts = container.get("volumeMounts") or ()
            yield from (str(each["mountPath"]) for each in mounts if each.get("name") not in scratch)


def notes_on_paths(job: Job) -> tuple[str, ...]:
    """Which output paths stay behind, for the user to read before the run starts."""
    return tuple(
        f"what the script writes to {path} stays in its pod; {{output}}/... is fetched, and so is "
        f"--collect {quote(path)}"
        for path in paths_that_stay(job)
    )


def _options(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every `--name value` and `--name=value`."""
    for word, following in zip(args, [*args[1:], ""], strict=False):
        if not word.startswith("-"):
            continue
        name, separator, value = word.partition("=")
        if separator:
            yield name, value
        elif following and not following.startswith("-"):
            yield name, following
