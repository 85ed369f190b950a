"""What this machine has, and what is missing for what: the findings that `echelon doctor` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from echelon.agent.ranks.mpi_version import ask
from echelon.agent.ranks.processes import adopt_orphans
from echelon.engines.findings import mpi_finding
from echelon.engines.local import devices
from echelon.errors import StateTrouble
from echelon.model.engine.finding import Finding
from echelon.model.resources import format_memory
from echelon.state_home import state_home

_PATIENCE = 30.0
_MODULES = {
    "torch": "framework torch: pip install torch",
    "tensorflow": "framework tensorflow: pip install tensorflow",
    "tf_keras": "model.fit on several TensorFlow workers: pip install tf_keras",
    "tensorboard": "TensorBoard logs: pip install tensorboard",
}
_LAB = "jupyterlab"
_PROBE = """
import importlib.metadata as m, importlib.util as u, json, os, sys
names = sys.argv[1:]
found = {}
for name in names:
    if u.find_spec(name) is not None:
        try:
            found[name] = m.version(name.replace("_", "-"))
        except m.PackageNotFoundError:
            found[name] = "?"
panel = u.find_spec("echelon") is not None
try:
    from jupyter_core.paths import jupyter_config_path, jupyter_path
    looked = [(jupyter_path("labextensions"), "echelon/package.json")]
    looked += [(jupyter_config_path(), "jupyter_server_config.d/echelon.json")]
    for folders, name in looked:
        panel = panel and any(os.path.exists(os.path.join(each, name)) for each in folders)
except ImportError:
    panel = False
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "modules": found, "panel": panel}))
"""


class LocalCheckup:
    """What this machine has for runs."""

    def check_up(
        self,
        *,
        python: str,
        image: str | None = None,  # noqa: ARG002 - none here
        workers: int = 1,  # noqa: ARG002 - they are all on this machine
    ) -> Iterator[Finding]:
        """Look at one thing after another."""
        return check_up(python)

    def missing_rights(self) -> Sequence[Mapping[str, object]]:
        """None: a user of this machine may do what runs need."""
        return ()


def check_up(python: str, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Look at one thing after another."""
    yield from _check_python(python)
    yield mpi_finding(ask(os.pathsep.join([environment.get("PATH", os.defpath), str(Path(python).parent)])))
    yield _check_gpus(environment)
    yield _check_state_folder()
    yield _check_folder(
        "results folder", Path.cwd(), "change to a folder that you may write to, or use --results"
    )
    yield _check_shared_memory()
    yield _check_descriptors()
    yield _check_orphans()


def _check_python(python: str) -> Iterator[Finding]:
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE, *_MODULES, _LAB],
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        found = msgspec.json.decode(answer.stdout)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        yield Finding(
            level="missing",
            what="Python for ranks",
            found=f"{python}: {error}",
            fix="activate an environment, or use --python",
        )
        return
    yield Finding(level="ok", what="Python for ranks", found=f"{found['version']} ({python})")
    for module, use in _MODULES.items():
        version = found["modules"].get(module)
        if version is not None:
            yield Finding(level="ok", what=module, found=version)
        else:
            yield Finding(level="degraded", what=module, found="not installed", fix=use)
    yield _check_panel(found["modules"].get(_LAB), there=found["panel"])


def _check_panel(lab: str | None, *, there: bool) -> Finding:
    """The panel that tags and runs notebooks (`lab/`)."""
    what, use = "panel in JupyterLab", "notebooks with buttons: pip install"
    if lab is None:
        fix = f"{use} jupyterlab 'echelon[notebook]'"
        return Finding(level="degraded", what=what, found="no JupyterLab", fix=fix)
    if not there:
        fix = f"{use} 'echelon[notebook]' beside JupyterLab"
        return Finding(level="degraded", what=what, found=f"JupyterLab {lab} does not have it", fix=fix)
    return Finding(level="ok", what=what, found=f"JupyterLab {lab} has it")


def _check_gpus(environment: Mapping[str, str]) -> Finding:
    if shutil.which("nvidia-smi", path=environment.get("PATH")) is None:
        return Finding(
            level="degraded",
            what="GPUs",
            found="no nvidia-smi",
            fix="--gpus: install NVIDIA's driver; ranks run on the CPU",
        )
    gpus = devices.read_gpus(environment)
    if not gpus:
        limited = environment.get("CUDA_VISIBLE_DEVICES")
        fix = (
            f"CUDA_VISIBLE_DEVICES={limited!r} hides them"
            if limited is not None
            else "run nvidia-smi to see why"
        )
        return Finding(level="degraded", what="GPUs", found="nvidia-smi shows none", fix=f"--gpus: {fix}")
    models = sorted({gpu.model for gpu in gpus})
    return Finding(level="ok", what="GPUs", found=f"{len(gpus)}: {', '.join(models)}")


def _check_state_folder() -> Finding:
    what = "state folder"
    try:
        return _check_folder(what, state_home(), "set ECHELON_HOME to a folder that you may write to")
    except StateTrouble as error:
        return Finding(level="missing", what=what, found=error.message, fix=error.hint)


def _check_folder(what: str, folder: Path, fix: str) -> Finding:
    existing = next(each for each in (folder, *folder.parents) if _exists(each))
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or error
        return Finding(level="missing", what=what, found=f"{folder} cannot be written to: {reason}", fix=fix)
    free = shutil.disk_usage(existing).free
    level: Literal["ok", "degraded"] = "ok" if free > 2**30 else "degraded"
    note = "" if level == "ok" else "long runs: free some space"
    return Finding(level=level, what=what, found=f"{folder}, {format_memory(free)} free", fix=note)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that may not be looked into
        return False


def _check_shared_memory() -> Finding:
    folder = Path("/dev/shm")  # noqa: S108 - looked at, not written to
    if not folder.exists():
        return Finding(level="ok", what="shared memory", found="no /dev/shm; the system does without")
    size = shutil.disk_usage(folder).total
    if size < 2**30:
        return Finding(
            level="degraded",
            what="shared memory",
            found=format_memory(size),
            fix="DataLoader workers: enlarge /dev/shm",
        )
    return Finding(level="ok", what="shared memory", found=format_memory(size))


def _check_descriptors() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        return Finding(
            level="degraded",
            what="open files",
            found=f"at most {hard}",
            fix="gangs above 1,000: ulimit -n 65536",
        )
    return Finding(
        level="ok",
        what="open files",
        found=f"{soft}, up to {'any' if hard == resource.RLIM_INFINITY else hard}",
    )


def _check_orphans() -> Finding:
    if adopt_orphans():
        return Finding(level="ok", what="clean-up", found="the kernel hands orphans to the run's supervisor")
    return Finding(
        level="degraded",
        what="clean-up",
        found="this system cannot hand orphans on",
        fix="a grandchild that leaves its process group can outlive its run",
    )
