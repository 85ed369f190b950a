"""Folders of Go modules that are read and not compiled, such as examples: the module alone is fetched, which
takes seconds where a build of its programs takes minutes. Kept by version, which is the one in `testbed/go`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from echelon.errors import Unavailable
from testbed.locking import held
from testbed.paths import CACHE, GO_SOURCES


def version(source: str, module: str) -> str:
    """The pinned version of a module that `testbed/go/SOURCE` requires."""
    required = re.escape(module)
    text = (GO_SOURCES / source / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s+{required} (v\S+)$", text, re.MULTILINE)
    if found is None:
        raise Unavailable(f"testbed/go/{source} requires no module {module}")
    return found[1]


def fetch(source: str, module: str, folder: str) -> Path:
    """One folder of a module, downloaded if it is not in the cache."""
    target = _place(source, module, folder)
    with held(CACHE / "modules" / ".lock"):
        if not target.is_dir():
            _download(f"{module}@{version(source, module)}", folder, target)
    return target


def _place(source: str, module: str, folder: str) -> Path:
    return CACHE / "modules" / f"{module.replace('/', '-')}-{version(source, module)}" / folder


def _download(module: str, folder: str, target: Path) -> None:
    go = shutil.which("go")
    if not go:
        raise Unavailable("modules are downloaded by Go", hint="install Go 1.26 or newer")
    target.parent.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=mod"}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".module-") as scratch:
        done = subprocess.run(
            [go, "mod", "download", "-json", module],
            cwd=scratch,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"{module} cannot be downloaded: {(done.stdout or done.stderr).strip()[-300:]}")
        made = Path(scratch, "made")
        # Files of Go's own cache are read-only, their copies are not.
        shutil.copytree(Path(json.loads(done.stdout)["Dir"]) / folder, made, copy_function=shutil.copyfile)
        for each in (made, *made.rglob("*")):
            each.chmod(0o755 if each.is_dir() else 0o644)
        made.replace(target)
