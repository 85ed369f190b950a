"""The new image's documents, from those of the base and the layers on top. Pure.

Nothing in them depends on the time or the machine: the same base and the same layers give the same digest.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from echelon.errors import Refused
from echelon.image import oci
from echelon.image.oci import Descriptor, Manifest
from echelon.values import frozen

# Beside the folders that a run's pod mounts below /echelon: neither hides the other.
SITE = "/echelon/site"
WORKSPACE = "/workspace"
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@frozen
class Layer:
    """A new layer: the blob, and the digest of the tar in it, which the configuration lists."""

    origin: str  # for messages: project, packages
    blob: Descriptor
    tar_digest: str
    has_programs: bool = False  # whether its packages include commands


@frozen
class Composed:
    """The two documents of an image, encoded."""

    config: bytes
    manifest: bytes
    layers: tuple[Descriptor, ...]


def compose(base: Manifest, config: dict[str, Any], layers: Sequence[Layer], *, base_name: str) -> Composed:
    """Add layers to an image; PYTHONPATH leads to the packages, and the project is the working folder."""
    new = copy.deepcopy(config)
    rootfs = new.get("rootfs")
    digests = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(digests, list) or len(digests) != len(base.layers):
        raise Refused(
            f"{base_name} contradicts itself: its manifest and its configuration list different layers",
            hint="use another base image",
        )
    digests += [layer.tar_digest for layer in layers]
    # An existing history must be continued to match the layers; a missing one may stay missing.
    history = new.get("history")
    if isinstance(history, list) and history:
        history += [{"created_by": f"echelon image build: {layer.origin}"} for layer in layers]
    new["config"] = _settings(new.get("config"), layers)
    encoded = oci.encode(new)
    blobs = (*base.layers, *(layer.blob for layer in layers))
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci.MANIFEST,
        "config": written(oci.describe(oci.CONFIG, encoded)),
        "layers": [written(blob) for blob in blobs],
        "annotations": {"org.opencontainers.image.base.digest": base.digest},
    }
    return Composed(config=encoded, manifest=oci.encode(manifest), layers=blobs)


def environment_of(config: dict[str, Any]) -> dict[str, str]:
    """The variables that an image sets."""
    settings = config.get("config")
    entries = settings.get("Env") if isinstance(settings, dict) else None
    texts = [text for text in entries if isinstance(text, str)] if isinstance(entries, list) else []
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def written(blob: Descriptor) -> dict[str, Any]:
    """A descriptor as documents contain it."""
    return {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}


def _settings(before: object, layers: Sequence[Layer]) -> dict[str, Any]:
    settings = dict(before) if isinstance(before, dict) else {}
    variables = environment_of({"config": settings})
    origins = {layer.origin for layer in layers}
    if "packages" in origins:
        variables["PYTHONPATH"] = _joined(SITE, variables.get("PYTHONPATH", ""))
        if any(layer.has_programs for layer in layers):
            variables["PATH"] = _joined(variables.get("PATH") or _USUAL_PATH, f"{SITE}/bin")
    if "project" in origins:
        settings["WorkingDir"] = WORKSPACE
    if variables:
        settings["Env"] = [f"{name}={value}" for name, value in variables.items()]
    return settings


def _joined(*paths: str) -> str:
    return ":".join(dict.fromkeys(part for path in paths for part in path.split(":") if part))
