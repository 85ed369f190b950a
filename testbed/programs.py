"""The Go programs of the testbed: which module each comes from, built once and kept by version.

Versions are pinned in `testbed/go/NAME/go.mod` and nowhere else. A build happens in a temporary folder that
is renamed when it is complete, so that an interrupted or failed build leaves nothing that looks like a
result.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from echelon.errors import Unavailable
from testbed.locking import held
from testbed.paths import CACHE, GO_SOURCES
from testbed.progress import run_long


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """How one Go module is built; `files` are folders of the module that are kept beside its programs.

    Where our module requires several, a folder is written "MODULE FOLDER" and kept below MODULE/FOLDER.
    """

    packages: tuple[str, ...] = (".",)
    tags: str = ""
    version_variable: str = ""
    static: bool = False
    files: tuple[str, ...] = ()


CONTAINERD = "github.com/containerd/containerd/v2/cmd"
KUBERNETES = Source(version_variable="k8s.io/component-base/version.gitVersion")
KUEUE = Source(packages=("sigs.k8s.io/kueue/cmd/kueue",), files=("config/components/crd/bases",))
SOURCES = {
    "sandbox": Source(static=True),
    "etcd": Source(packages=("go.etcd.io/etcd/server/v3",)),
    "containerd": Source(
        packages=(f"{CONTAINERD}/containerd", f"{CONTAINERD}/containerd-shim-runc-v2", f"{CONTAINERD}/ctr"),
        tags="no_btrfs,no_zfs,no_devmapper",
    ),
    "coredns": Source(),
    "kubernetes": KUBERNETES,
    "kubernetes-1.31": KUBERNETES,
    "job-controllers": Source(
        packages=(
            "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
            "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
            "sigs.k8s.io/jobset",
        ),
        files=(
            "github.com/kubeflow/mpi-operator examples",
            "github.com/kubeflow/mpi-operator manifests/base",
            "github.com/kubeflow/trainer/v2 manifests/base",
            "sigs.k8s.io/jobset config/components",
        ),
    ),
    "kueue": KUEUE,
    "kueue-0.19": KUEUE,
    "kwok": Source(packages=("sigs.k8s.io/kwok/cmd/kwok",)),
    "registry": Source(packages=("github.com/distribution/distribution/v3/cmd/registry",)),
    "training-operator": Source(
        packages=("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
        files=("manifests/base/crds", "examples"),
    ),
    "trainer-2.3": Source(
        packages=("github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager", "sigs.k8s.io/jobset"),
        files=(
            "github.com/kubeflow/trainer/v2 manifests/base",
            "sigs.k8s.io/jobset config/components",
        ),
    ),
    "tekton": Source(
        packages=tuple(
            f"github.com/tektoncd/pipeline/cmd/{name}" for name in ("controller", "entrypoint", "nop")
        ),
        static=True,  # the last two run in pods
        files=("config",),
    ),
}
# What every cluster needs beside its version of Kubernetes; the rest is built on demand.
ALWAYS = ("sandbox", "etcd", "containerd", "coredns")


def program(source: str, name: str = "") -> Path:
    """The path of a program, built if it is not in the cache."""
    return folder(source) / (name or source)


def folder(name: str) -> Path:
    """The folder of one module's programs, built if it is not in the cache."""
    if name not in SOURCES:
        raise Unavailable(
            f"no Go program is called {name!r}", hint="there are: " + ", ".join(sorted(SOURCES))
        )
    target = CACHE / "bin" / f"{name}-{_key(name)}"
    if target.is_dir():
        return target
    with held(CACHE / "bin" / f".{name}.lock"):
        if not target.is_dir():
            _build(name, target)
    return target


def is_built(name: str) -> bool:
    """Whether a module's programs are in the cache."""
    return (CACHE / "bin" / f"{name}-{_key(name)}").is_dir()


def version(name: str) -> str:
    """The pinned version of a module, from its go.mod."""
    found = re.search(r"^require \S+ (v\S+)$", (GO_SOURCES / name / "go.mod").read_text(), re.MULTILINE)
    return found[1] if found else ""


def _key(name: str) -> str:
    digest = hashlib.sha256(repr((SOURCES[name], platform.machine())).encode())
    for path in sorted((GO_SOURCES / name).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{version(name) or 'own'}-{digest.hexdigest()[:12]}"


def _build(name: str, target: Path) -> None:
    go = shutil.which("go")
    if not go:
        raise Unavailable("the testbed's programs are built with Go", hint="install Go 1.26 or newer")
    source = SOURCES[name]
    flags = "-s -w" + (f" -X {source.version_variable}={version(name)}" if source.version_variable else "")
    env = os.environ | {"GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    if source.static:
        env["CGO_ENABLED"] = "0"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        module, output = Path(scratch, "module"), Path(scratch, "output")
        # The copy receives go.sum and the indirect requirements; the repository keeps the short go.mod.
        shutil.copytree(GO_SOURCES / name, module)
        command = [go, "build", "-trimpath", "-ldflags", flags, "-tags", source.tags, "-o", f"{output}/"]
        run_long(
            f"building {name} {version(name)} (once)".replace("  ", " "),
            [*command, *source.packages],
            log=CACHE / "logs" / f"build-{name}.log",
            cwd=module,
            env=env,
        )
        for wanted in source.files:
            required, _, inner = wanted.rpartition(" ")
            kept = output / (wanted.replace(" ", "/") if required else Path(inner).name)
            shutil.copytree(_module_folder(go, module, env, required) / inner, kept)
        output.replace(target)


def _module_folder(go: str, module: Path, env: dict[str, str], required: str = "") -> Path:
    """The folder of the sources of a module that our go.mod requires, without a name of the first."""
    if not required:
        edited = subprocess.run(
            [go, "mod", "edit", "-json"], cwd=module, env=env, capture_output=True, check=True
        )
        entries = json.loads(edited.stdout)["Require"]
        required = next(entry["Path"] for entry in entries if not entry.get("Indirect"))
    listed = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", required],
        cwd=module,
        env=env,
        capture_output=True,
        check=True,
        text=True,
    )
    return Path(listed.stdout.strip())
