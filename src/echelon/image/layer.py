"""What a build puts on top of a base image: layers, and the documents that list them.

A layer is files of this machine as a compressed tar. Like a bundle it has no times, no owners and no
permissions but "executable"; unlike a bundle it is written to a file, since packages may be gigabytes. The
file has no name: an interrupted build leaves nothing behind. The documents are those of the base with the
layers added, and pure. Neither depends on the time or the machine: the same base and the same files give the
same digest.
"""

from __future__ import annotations

import copy
import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from echelon.bundle.archive import compress, portable, read_content
from echelon.bundle.survey import TreeEntry, unreadable
from echelon.errors import Refused
from echelon.image import oci
from echelon.image.oci import Descriptor, ImageManifest
from echelon.values import frozen

# Beside the folders that a run's pod mounts below /echelon: neither hides the other.
SITE = "/echelon/site"
WORKSPACE = "/workspace"
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PIECE = 1 << 20
_BLOCK = 512
# The earliest time that a zip file can hold: wheels and zipapps are made from files in images, too.
_EPOCH = 315532800


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


def compose(
    base: ImageManifest, config: dict[str, Any], layers: Sequence[Layer], *, base_name: str
) -> Composed:
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


@contextmanager
def packed(
    origin: str, root: Path, found: Iterable[TreeEntry], below: str
) -> Iterator[tuple[Layer, IO[bytes]]]:
    """Pack files of `root` below an absolute folder of the image; the folder exists even without files. The
    temporary file lasts while the block runs.
    """
    with tempfile.TemporaryFile(prefix="echelon-layer-") as file:
        blob, tar = hashlib.sha256(), hashlib.sha256()
        for piece in compress(_hashed(tar, _tar(root, found, below.strip("/")))):
            blob.update(piece)
            file.write(piece)
        file.flush()
        layer = Layer(
            origin=origin,
            blob=Descriptor(media_type=oci.LAYER, digest=f"sha256:{blob.hexdigest()}", size=file.tell()),
            tar_digest=f"sha256:{tar.hexdigest()}",
        )
        yield layer, file


def read(file: IO[bytes]) -> Iterator[bytes]:
    """All of a layer's file from its beginning, piece by piece; may be called several times."""
    file.seek(0)
    while piece := file.read(_PIECE):
        yield piece


def list_tree(root: Path) -> list[TreeEntry]:
    """Everything below a folder of our own: files, links and empty folders."""
    found = []
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        names = files if files or folders or here == root else [""]
        names = [*names, *(name for name in folders if (here / name).is_symlink())]
        for name in names:
            full = here / name
            target = os.readlink(full) if full.is_symlink() else ""  # noqa: PTH115 - Path changes what it reads
            found.append(TreeEntry(path=str(full.relative_to(root)), status=full.lstat(), target=target))
    return sorted(found, key=lambda each: os.fsencode(each.path))


def _tar(root: Path, found: Iterable[TreeEntry], below: str) -> Iterator[bytes]:
    """The tar, piece by piece: a folder before what is in it."""
    folders: set[str] = set()
    yield from _folders(f"{below}/.", folders)
    for each in found:
        name = f"{below}/{each.path}"
        yield from _folders(name, folders)
        if stat.S_ISDIR(each.status.st_mode):
            yield from _folders(f"{name}/.", folders)
        elif stat.S_ISLNK(each.status.st_mode):
            yield _header(name, tarfile.SYMTYPE, 0o777, target=each.target)
        elif stat.S_ISREG(each.status.st_mode):
            executable = each.status.st_mode & stat.S_IXUSR
            yield _header(name, tarfile.REGTYPE, 0o755 if executable else 0o644, size=each.status.st_size)
            yield from read_content(root, each)
            yield b"\0" * (-each.status.st_size % _BLOCK)
        else:
            raise unreadable(each.path, OSError(0, "it is not a file"))
    yield b"\0" * (2 * _BLOCK)


def _folders(name: str, seen: set[str]) -> Iterator[bytes]:
    """The folders above a name that are not in the tar yet."""
    for at in (at for at, letter in enumerate(name) if letter == "/"):
        folder = name[:at]
        if folder not in seen:
            seen.add(folder)
            yield _header(folder, tarfile.DIRTYPE, 0o755)


def _header(name: str, kind: bytes, mode: int, *, size: int = 0, target: str = "") -> bytes:
    info = tarfile.TarInfo(portable(name))
    info.type, info.mode, info.size, info.mtime = kind, mode, size, _EPOCH
    info.linkname = portable(target)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _hashed(into: hashlib._Hash, pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        into.update(piece)
        yield piece
