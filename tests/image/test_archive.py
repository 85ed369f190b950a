"""Images in files: read with suspicion, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.image.bases import Base, digest, write_layout

from echelon.errors import EchelonError, Refused, StateTrouble, Unavailable
from echelon.image import oci
from echelon.image.archive import Archive, write_archive
from echelon.image.oci import Descriptor, parse_platform

AMD = parse_platform("linux/amd64")


def described(data: bytes) -> Descriptor:
    return Descriptor(media_type=oci.LAYER, digest=digest(data), size=len(data))


def write(path: Path, *, name: str = "", pieces: Iterator[bytes] | None = None) -> Path:
    base = Base()
    blobs = {described(base.layer): pieces or iter((base.layer,))}
    write_archive(
        path,
        (base.manifest, base.config),
        blobs,
        image=oci.describe(oci.MANIFEST, base.manifest),
        platform=AMD,
        name=name,
    )
    return path


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    base, archive = Base(), Archive(write(tmp_path / "image.tar", name="a.io/x:1"))
    index = json.loads(archive.document("")[0])
    (entry,) = index["manifests"]
    assert entry["platform"] == {"os": "linux", "architecture": "amd64"}
    assert entry["annotations"]["io.containerd.image.name"] == "a.io/x:1"
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1"
    assert archive.document(entry["digest"])[0] == base.manifest
    assert b"".join(archive.blob(described(base.layer))) == base.layer
    archive.close()


def test_it_is_an_ordinary_tar_and_always_the_same(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.tar"), write(tmp_path / "two.tar")
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as tar:
        names = tar.getnames()
    assert names[:2] == ["oci-layout", "index.json"]
    assert all(name.startswith("blobs/sha256/") for name in names[2:])


def test_an_interrupted_archive_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_text("what was there before")

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, pieces=broken())
    assert path.read_text() == "what was there before"
    assert [each.name for each in tmp_path.iterdir() if not each.is_dir()] == ["image.tar"]


def test_a_file_is_as_readable_as_others_are(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        assert write(tmp_path / "image.tar").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(StateTrouble, match="cannot be written"):
        write(tmp_path / "nowhere" / "image.tar")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StateTrouble):
        write(tmp_path / "folder")


@pytest.mark.parametrize("content", [b"", b"no tar", b"\0" * 5000])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(content)
    with pytest.raises(EchelonError, match=r"image\.tar"), closing(Archive(path)) as archive:
        archive.document("")


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no archive"):
        Archive(tmp_path / "gone.tar")
    archive = Archive(write_layout(tmp_path / "image.tar", Base()))
    with pytest.raises(Unavailable, match="holds no blobs/sha256"):
        archive.document(digest(b"other"))
    archive.close()


def test_a_blob_under_a_false_name_is_refused(tmp_path: Path) -> None:
    base = Base()
    name = f"blobs/{digest(base.layer).replace(':', '/')}"
    changed = base.layer[:-1] + b"x"
    archive = Archive(write_layout(tmp_path / "image.tar", base, changed={name: changed}))
    with pytest.raises(Refused, match="not to be trusted"):
        b"".join(archive.blob(described(base.layer)))
    archive.close()


def test_an_archive_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    base = Base(content=os.urandom(100_000))
    path = write_layout(tmp_path / "image.tar", base)
    archive = Archive(path)
    os.truncate(path, path.stat().st_size - 60_000)
    with pytest.raises(Refused, match="ends too early"):
        b"".join(archive.blob(described(base.layer)))
    archive.close()


def test_a_document_without_end_is_refused(tmp_path: Path) -> None:
    huge = {"index.json": b" " * (oci.LARGEST_DOCUMENT + 1)}
    archive = Archive(write_layout(tmp_path / "image.tar", Base(), changed=huge))
    with pytest.raises(Refused, match="too large"):
        archive.document("")
    archive.close()


def test_links_and_devices_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    with tarfile.open(path, "w") as tar:
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "/etc/passwd")):
            info = tarfile.TarInfo("index.json")
            info.type, info.linkname = kind, target
            tar.addfile(info)
        device = tarfile.TarInfo("oci-layout")
        device.type = tarfile.CHRTYPE
        tar.addfile(device, io.BytesIO())
    archive = Archive(path)
    with pytest.raises(Unavailable, match=r"holds no index\.json"):
        archive.document("")
    archive.close()
