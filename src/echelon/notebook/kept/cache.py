"""A step's result from an earlier pipeline run, when all that it depends on is the same: its code, the
parameters that it may read, the variables and files that come in, the files beside the notebook, the number
of workers, the Python.

What is taken over is verified with the earlier run's secret and sealed again with this one's; nothing is
unpickled here."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from echelon.codecs.parsing import Changed, checked
from echelon.errors import EchelonError
from echelon.model.program import DONE
from echelon.notebook.kept.folder import (
    PipelineFolder,
    StepRecord,
    files_in,
    is_shown,
    pipeline_folders,
    read_record,
)
from echelon.values import frozen

_MOST = 10_000  # files beside a notebook


@frozen
class Earlier:
    """A step's result of an earlier pipeline run."""

    run: str
    step: StepRecord


def state_of(project: Path, results: Path) -> str:
    """A digest of the files beside a notebook, by their size and time of change; one of its own where they
    are too many to look at. Other notebooks are left out, which change whenever they are looked at, and the
    folder of results.
    """
    found = hashlib.sha256()
    count = 0
    for path, folders, names in os.walk(project):
        inside = [each for each in folders if is_shown(Path(path, each)) and Path(path, each) != results]
        folders[:] = sorted(inside)
        for name in sorted(names):
            file = Path(path, name)
            if name.startswith(".") or name.endswith(".ipynb"):
                continue
            count += 1
            if count > _MOST:
                return secrets.token_hex(16)
            with suppress(OSError):  # it has just gone
                about = file.stat()
                state = f"{file.relative_to(project)}\0{about.st_size}\0{about.st_mtime_ns}\n"
                found.update(os.fsencode(state))
    return found.hexdigest()


def take_over(folder: PipelineFolder, name: str, step: str, key: str) -> Earlier | None:
    """Bring a step's variables and files from the newest earlier run with that key; None if there is none."""
    for earlier in reversed(pipeline_folders(folder.path.parent, name)):
        if earlier == folder:
            continue
        try:
            record = read_record(earlier).steps.get(step)
        except EchelonError:
            continue
        if record is None or record.key != key or record.state not in DONE:
            continue
        there = files_in(earlier.work)
        if any(there.get(path) != tuple(stamp) for path, stamp in record.files.items()):
            continue  # a later step has changed what this one made
        try:
            _bring_values(earlier, folder, step)
        except (OSError, ValueError, KeyError, Changed):
            continue
        for path in record.files:
            target = folder.work / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(earlier.work / path, target)
        _bring_results(earlier.results(step), folder.results(step))
        return Earlier(run=earlier.name, step=record)
    return None


def _bring_values(earlier: PipelineFolder, folder: PipelineFolder, step: str) -> None:
    partial = folder.values / f".{step}.cached"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(earlier.values / step, partial)
    theirs, ours = earlier.secret.read_bytes(), folder.secret.read_bytes()
    for meta in sorted(partial.glob("*/meta.json")):
        content = json.loads(meta.read_text("utf-8"))
        seal = content.pop("seal")
        if content["run"] != earlier.name or not hmac.compare_digest(seal, _seal(content, theirs)):
            raise Changed(f"{meta} was not written by {earlier.name}")
        for name in content["files"]:
            checked(meta.parent, name, content["files"])
        content["run"] = folder.name
        meta.write_text(json.dumps({**content, "seal": _seal(content, ours)}), encoding="utf-8")
    target = folder.values / step
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def _bring_results(earlier: Path, results: Path) -> None:
    """Bring what a step has shown, logged and saved; folders of other workers stay where they are."""
    set_aside(results)
    with suppress(OSError):  # they are not input of any step
        shutil.copytree(earlier, results, symlinks=True, ignore=shutil.ignore_patterns("workers"))


def _seal(content: dict[str, object], secret: bytes) -> str:
    return hmac.new(secret, json.dumps(content, sort_keys=True).encode(), "sha256").hexdigest()


def set_aside(folder: Path) -> None:
    """Give a step's results of an earlier start another name."""
    if folder.exists():
        number = 1
        while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
            number += 1
        folder.rename(aside)
