"""Building a Dockerfile with an installed builder: buildkit, podman or docker, the first that works.

A builder's output goes to standard error, since standard output is for the result.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from pathlib import Path

from echelon.errors import InvalidJob, Unavailable
from echelon.image.oci import Platform
from echelon.values import frozen

# The command that tests each builder: a client without its daemon (docker, buildctl) is of no use.
_QUESTIONS = {
    "buildctl": ("debug", "workers"),
    "podman": ("info",),
    "docker": ("version", "--format", "{{.Server.Version}}"),
}
_PATIENCE = 30.0
_STDERR = 2


@frozen
class Handover:
    """What the builder builds, and where it puts the image."""

    dockerfile: Path
    context: Path
    name: str  # the full name, to be pushed or only kept in the archive
    push: bool
    to: Path | None = None
    platform: Platform | None = None


def find_builder() -> str:
    """The first builder that works; raises Unavailable with what each lacks."""
    lacking = []
    for name, question in _QUESTIONS.items():
        program = shutil.which(name)
        if program is None:
            lacking.append(f"{name} is not installed")
        elif _answers((program, *question)):
            return name
        else:
            lacking.append(f"{name} is installed but does not answer (`{name} {question[0]}`)")
    raise Unavailable(
        f"a Dockerfile needs a builder: {'; '.join(lacking)}",
        hint="install podman or start one of them; without -f, `echelon image build --base` needs none",
    )


def hand_over(what: Handover) -> str:
    """Build with the first working builder; returns its name."""
    if not what.dockerfile.is_file():
        raise InvalidJob("file", str(what.dockerfile), "is not a Dockerfile", hint="check the path")
    builder = find_builder()
    for command in commands(builder, what):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=_STDERR, check=False)
        if done.returncode:
            raise Unavailable(
                f"`{builder} {command[1]}` failed with exit code {done.returncode}: its output is above",
                hint="if it says denied or unauthorized: log in to the registry as a user who may push",
            )
    return builder


def commands(builder: str, what: Handover) -> list[list[str]]:
    """The commands of one builder. Pure."""
    file, context = str(what.dockerfile.absolute()), str(what.context.absolute())
    platform = str(what.platform) if what.platform else ""
    if builder == "buildctl":
        return [_buildctl(what, context, platform)]
    first = [builder, "build", "--file", file, "--tag", what.name]
    made = [[*first, *(["--platform", platform] if platform else []), context]]
    if what.to is not None:
        kind = ["--format", "oci-archive"] if builder == "podman" else []  # docker's own format holds OCI's
        made.append([builder, "save", *kind, "--output", str(what.to.absolute()), what.name])
    if what.push:
        made.append([builder, "push", what.name])
    return made


def _buildctl(what: Handover, context: str, platform: str) -> list[str]:
    command = ["buildctl", "build", "--frontend", "dockerfile.v0", "--local", f"context={context}"]
    command += ["--local", f"dockerfile={what.dockerfile.absolute().parent}"]
    command += ["--opt", f"filename={what.dockerfile.name}"]
    command += ["--opt", f"platform={platform}"] if platform else []
    if what.to is not None:
        command += ["--output", _option(type="oci", dest=str(what.to.absolute()), name=what.name)]
    if what.push:
        command += ["--output", _option(type="image", name=what.name, push="true")]
    return command


def _option(**fields: str) -> str:
    """buildctl reads its outputs as a line of CSV, so that a comma in a path must be quoted."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([f"{key}={value}" for key, value in fields.items()])
    return line.getvalue()


def _answers(command: tuple[str, ...]) -> bool:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
