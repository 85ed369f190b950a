"""Tiny images to build on, made from nothing: with history, for several platforms, in Docker's format."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

OCI = "application/vnd.oci.image"
DOCKER = "application/vnd.docker"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def layer(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Base:
    """The documents and blobs of one image for one platform."""

    def __init__(
        self,
        *,
        architecture: str = "amd64",
        content: bytes = b"base\n",
        docker: bool = False,
        variables: tuple[str, ...] = ("PATH=/usr/bin", "PYTHON_VERSION=3.11.9"),
        **more: Any,
    ) -> None:
        tar = layer("etc/base", content)
        self.layer = gzip.compress(tar, mtime=0)
        config = {
            "os": "linux",
            "architecture": architecture,
            "config": {"Env": list(variables), "Cmd": ["/bin/sh"], "User": "1000", "Labels": {"a": "b"}},
            "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
            "history": [{"created_by": "nothing"}],
        } | more
        self.config = json.dumps(config).encode()
        names = (
            (
                f"{DOCKER}.distribution.manifest.v2+json",
                f"{DOCKER}.container.image.v1+json",
                f"{DOCKER}.image.rootfs.diff.tar.gzip",
            )
            if docker
            else (f"{OCI}.manifest.v1+json", f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar+gzip")
        )
        self.media_type = names[0]
        self.platform = {"os": "linux", "architecture": architecture}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": names[0],
                "config": descriptor(names[1], self.config),
                "layers": [descriptor(names[2], self.layer)],
            }
        ).encode()

    def blobs(self) -> tuple[bytes, ...]:
        return (self.config, self.layer)

    def entry(self) -> dict[str, Any]:
        return descriptor(self.media_type, self.manifest) | {"platform": self.platform}


def descriptor(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(data), "size": len(data)}


def index(*images: Base, attested: bool = False, docker: bool = False) -> bytes:
    entries = [image.entry() for image in images]
    if attested:
        unknown = {"os": "unknown", "architecture": "unknown"}
        entries.append(descriptor(f"{OCI}.manifest.v1+json", b"{}") | {"platform": unknown})
    kind = f"{DOCKER}.distribution.manifest.list.v2+json" if docker else f"{OCI}.index.v1+json"
    return json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()


def write_layout(path: Path, *images: Base, changed: dict[str, bytes] | None = None) -> Path:
    """An archive of images; `changed` are members with another content, or more of them."""
    members = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index(*images)}
    for image in images:
        for blob in (image.manifest, *image.blobs()):
            members[f"blobs/{digest(blob).replace(':', '/')}"] = blob
    with tarfile.open(path, "w") as tar:
        for name, content in (members | (changed or {})).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path
