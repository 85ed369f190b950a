"""Container images without Docker and without a registry: Debian's own packages, written as an OCI layout.

A root file system from `mmdebstrap` becomes the one layer of an image; the tar is kept in the cache and
imported into a node's containerd. `sandbox` is the testbed's own program that holds a pod's namespaces.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from echelon.errors import Unavailable
from testbed import programs
from testbed.debian import tool
from testbed.locking import held
from testbed.paths import CACHE, NODES
from testbed.progress import run_long

PREFIX = os.environ.get("ECHELON_TESTBED_IMAGES", "docker.io/testbed")
SANDBOX = "sandbox"
SUITE = "trixie"
RECIPE = "2"  # increase it when the way an image is made changes
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


def reference(name: str) -> str:
    """The full name of an image for pods."""
    return f"{PREFIX}/{name}:1"


def build(name: str) -> Path:
    """The OCI archive of an image, built if it is not in the cache."""
    if name == SANDBOX:
        key = programs.folder("sandbox").name
    elif name in RECIPES:
        key = hashlib.sha256(repr((RECIPES[name], SUITE, RECIPE, platform.machine())).encode()).hexdigest()[
            :12
        ]
    else:
        raise Unavailable(f"no image is called {name!r}", hint=f"there are: {', '.join(sorted(RECIPES))}")
    stem = f"{name}-{key}-{hashlib.sha256(PREFIX.encode()).hexdigest()[:6]}"
    target = CACHE / "images" / f"{stem}.tar"
    if not target.exists():
        with held(CACHE / "images" / f".{name}.lock"):
            if not target.exists():
                _build(name, target)
    return target


def load(name: str, node: str) -> None:
    """Import an image into a node, unless it is there; pods then start without pulling it."""
    ctr = [
        str(programs.program("containerd", "ctr")),
        "--address",
        str(NODES / node / "containerd.sock"),
        "--namespace",
        "k8s.io",
    ]
    listed = subprocess.run(
        [*ctr, "images", "list", "-q"], capture_output=True, text=True, check=True
    ).stdout.split()
    if reference(name) in listed:
        return
    done = subprocess.run(
        [*ctr, "images", "import", str(build(name))], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(
            f"importing {reference(name)} into {node} failed: {done.stderr.strip()}",
            hint="is the node alive?",
        )


def _build(name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        layer, archive = Path(scratch, "layer.tar"), Path(scratch, "image.tar")
        if name == SANDBOX:
            with tarfile.open(layer, "w") as tar:
                tar.add(programs.program("sandbox"), arcname="sandbox")
            write_archive(archive, name, layer, {"Entrypoint": ["/sandbox"]})
        else:
            recipe = RECIPES[name]
            words = [tool("mmdebstrap"), "--variant=minbase", f"--include={','.join(recipe.packages)}"]
            run_long(
                f"building the image {name} from Debian {SUITE} (once)",
                [*words, SUITE, str(layer)],
                log=CACHE / "logs" / f"image-{name}.log",
            )
            if recipe.wheels:
                _add_wheels(name, layer, recipe.wheels, Path(scratch, "wheels"))
            path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            write_archive(archive, name, layer, {"Env": [path, *recipe.environment], "Cmd": ["/bin/sh"]})
        archive.replace(target)


def _add_wheels(name: str, layer: Path, wheels: tuple[str, ...], folder: Path) -> None:
    """Install packages where every Python 3 of Debian finds them, with this machine's pip."""
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--only-binary", ":all:"]
    run_long(
        f"adding {', '.join(wheels)} to the image {name}",
        [*pip, "--quiet", "--disable-pip-version-check", "--target", str(folder), *wheels],
        log=CACHE / "logs" / f"image-{name}-wheels.log",
    )
    with tarfile.open(layer, "a") as tar:
        tar.add(folder, arcname="./usr/lib/python3/dist-packages")


def write_archive(archive: Path, name: str, layer: Path, settings: dict[str, list[str]]) -> None:
    """Write an OCI layout with one uncompressed layer as a tar."""
    with layer.open("rb") as file:
        layer_digest = hashlib.file_digest(file, "sha256").hexdigest()
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    configuration = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        }
    ).encode()
    kind = "application/vnd.oci.image"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _descriptor(f"{kind}.config.v1+json", configuration),
            "layers": [
                {
                    "mediaType": f"{kind}.layer.v1.tar",
                    "digest": f"sha256:{layer_digest}",
                    "size": layer.stat().st_size,
                }
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


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
