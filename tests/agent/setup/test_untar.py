"""Archives made to do harm: each is refused, writes nothing outside and leaves nothing behind."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.agent.setup import untar
from echelon.agent.setup.unpack import BadBundle, unpack
from echelon.bundle import pack_files


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE, mode=0o755)


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def tar(*members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:  # noqa: A002
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def try_to_unpack(place: Path, raw: bytes, limit: int = 10_000_000, compress: bool = True) -> Path:
    data = gzip.compress(raw, mtime=0) if compress else raw
    return Path(unpack(data, hashlib.sha256(data).hexdigest(), str(place / "target"), limit))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder beside which lies what an attacker would like to change; afterwards all of it is as it was."""
    inner = tmp_path / "place"
    inner.mkdir()
    (tmp_path / "precious").write_text("untouched")
    (tmp_path / "precious-folder").mkdir()
    yield inner
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "precious", "precious-folder"]
    assert (tmp_path / "precious").read_text() == "untouched"
    assert not list((tmp_path / "precious-folder").iterdir())


def raw_member(name: bytes, size_field: bytes, kind: bytes = b"0", content: bytes = b"") -> bytes:
    """A header that `tarfile` would not write."""
    block = bytearray(
        struct.pack(
            "100s8s8s8s12s12s8s1s100s8s",
            name,
            b"644\0",
            b"0",
            b"0",
            size_field,
            b"0",
            b" " * 8,
            kind,
            b"",
            b"ustar\0" + b"00",
        )
    )
    block += bytes(512 - len(block))
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + content + bytes(-len(content) % 512)


def pax(*records: bytes) -> bytes:
    """An extended header with these records, each given its length."""
    text = b""
    for record in records:
        length = len(record) + 3
        while len(b"%d %s\n" % (length, record)) != length:
            length += 1
        text += b"%d %s\n" % (length, record)
    return raw_member(b"pax", b"%o" % len(text), b"x", text)


END = bytes(1024)
HOSTILE = {
    "absolute": (tar(member("/tmp/evil", b"x")), "absolute path"),
    "absolute by extension": (pax(b"path=/tmp/evil") + raw_member(b"a", b"0") + END, "absolute path"),
    "up": (tar(member("../precious", b"x")), "climbs out"),
    "up from below": (tar(member("a/../../precious", b"x")), "climbs out"),
    "up, staying inside": (tar(member("a/../b", b"x")), "climbs out"),
    "up as a folder": (tar(folder("../precious-folder/new")), "climbs out"),
    "up as a link": (tar(link("../precious-folder/new", "x")), "climbs out"),
    "dot": (tar(member("./a")), "not a proper name"),
    "double slash": (tar(member("a//b")), "not a proper name"),
    "no name": (tar(member("")), "not a proper name"),
    "NUL": (pax(b"path=a\0b") + raw_member(b"a", b"0") + END, "not a proper name"),
    "long name": (pax(b"path=" + b"x" * 300) + raw_member(b"a", b"0") + END, "not a proper name"),
    "deep": (tar(member("/".join("d" * 200))), "not a proper name"),
    "link out": (tar(link("a", "../precious")), "link that climbs out"),
    "link out from below": (tar(link("a/b", "../../precious")), "link that climbs out"),
    "link out on its way": (tar(link("a", "../place/b")), "link that climbs out"),
    "link to nothing": (tar(link("a", "")), "link to nothing"),
    "through an absolute link": (
        tar(link("a", "/tmp"), member("a/evil", b"x")),
        "below something that is not a folder",
    ),
    "through a relative link": (tar(folder("b"), link("a", "b"), member("a/evil", b"x")), "below something"),
    "through a link made later": (tar(member("a/x", b"x"), link("a", "/tmp")), "more than once"),
    "through two links": (tar(link("a", "b"), link("b", "/tmp"), folder("a/evil")), "below something"),
    "over a link": (tar(link("a", "/tmp/evil"), member("a", b"x")), "more than once"),
    "link over a file": (tar(member("a", b"x"), link("a", "/tmp")), "more than once"),
    "link over a folder": (tar(folder("a"), link("a", "/tmp"), member("a/x", b"x")), "more than once"),
    "below a file": (tar(member("a", b"x"), member("a/b", b"x")), "below something that is not a folder"),
    "file over a folder": (tar(member("a/b", b"x"), member("a", b"x")), "more than once"),
    "file twice": (tar(member("a", b"x"), member("a", b"y")), "more than once"),
    "folder twice": (tar(folder("a"), folder("a")), "more than once"),
    "hard link out": (tar(member("a", type=tarfile.LNKTYPE, linkname="/etc/passwd")), "a hard link"),
    "hard link inside": (tar(member("a"), member("b", type=tarfile.LNKTYPE, linkname="a")), "a hard link"),
    "character device": (tar(member("a", type=tarfile.CHRTYPE, devmajor=1, devminor=3)), "a device"),
    "block device": (tar(member("a", type=tarfile.BLKTYPE, devmajor=8)), "a device"),
    "pipe": (tar(member("a", type=tarfile.FIFOTYPE)), "a pipe"),
    "unknown kind": (raw_member(b"a", b"0", b"Z") + END, "of no known kind"),
    "sparse": (raw_member(b"a", b"0", b"S") + END, "of no known kind"),
    "long name of another format": (tar(member("x" * 150), format=tarfile.GNU_FORMAT), "damaged"),
    "global header": (raw_member(b"a", b"0", b"g") + END, "of no known kind"),
    "setuid": (tar(member("a", mode=0o4755)), "special rights"),
    "setgid": (tar(member("a", mode=0o2755)), "special rights"),
    "sticky": (tar(member("a", mode=0o1755)), "special rights"),
    "marker": (tar(member(".echelon-bundle", b"0" * 64)), "name of our own"),
    "marker as a link": (tar(link(".echelon-bundle", "/tmp/evil")), "name of our own"),
    "bomb": (tar(member("a", bytes(20_000_000))), "beyond the limit"),
    "many small": (tar(*(member(f"{number}", bytes(1_000_000)) for number in range(12))), "beyond the limit"),
    "bomb behind the end": (tar(member("a")) + bytes(20_000_000), "beyond the limit"),
    "size that lies": (raw_member(b"a", b"77777777777") + END, "beyond the limit"),
    "size that lies a little": (raw_member(b"a", b"7777") + END, "cut off"),
    "size in another notation": (
        raw_member(b"a", b"\x80" + bytes(10) + b"\x01", content=b"x") + END,
        "damaged",
    ),
    "size that is not a number": (raw_member(b"a", b"-1") + END, "damaged"),
    "size by extension": (pax(b"size=1") + raw_member(b"a", b"0", content=b"x") + END, "damaged"),
    "long extension": (raw_member(b"p", b"%o" % 100_000, b"x", b"x" * 100_000) + END, "too long"),
    "extension without an end": (raw_member(b"p", b"4", b"x", b"9 pa") + END, "damaged"),
    "extension of length 0": (raw_member(b"p", b"4", b"x", b"0 a=") + END, "damaged"),
    "link with content": (raw_member(b"a", b"1", b"2", b"x") + END, "has content"),
    "wrong checksum": (tar(member("a")).replace(b"a", b"b", 1), "damaged"),
    "no tar": (b"x" * 2000, "damaged"),
    "empty": (b"", "cut off"),
    "no end": (tar(member("a", b"x"))[:1024], "cut off"),
    "cut off in a file": (tar(member("a", bytes(5000)))[:2000], "cut off"),
    "more behind the end": (tar(member("a")) + tar(member("b")), "more behind its end"),
}


@pytest.mark.parametrize(("raw", "problem"), HOSTILE.values(), ids=HOSTILE.keys())
def test_refused(place: Path, raw: bytes, problem: str) -> None:
    with pytest.raises(BadBundle, match=problem):
        try_to_unpack(place, raw)
    assert not list(place.iterdir())
    assert not Path("/tmp/evil").exists()


GOOD = gzip.compress(tar(member("a", bytes(100_000))), mtime=0)
DAMAGED = {
    "not compressed": (tar(member("a")), "damaged"),
    "cut off": (GOOD[:-5], "cut off"),
    "cut off early": (GOOD[: len(GOOD) // 2], "cut off"),
    "nothing": (b"", "cut off"),
    "wrong checksum": (GOOD[:-8] + b"0000" + GOOD[-4:], "damaged"),
    "garbage behind": (GOOD + b"garbage", "behind its end"),
    "a second archive behind": (GOOD + GOOD, "behind its end"),
    "far behind": (GOOD + bytes(200_000), "behind its end"),
}


@pytest.mark.parametrize(("data", "problem"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged(place: Path, data: bytes, problem: str) -> None:
    with pytest.raises(BadBundle, match=problem):
        try_to_unpack(place, data, compress=False)
    assert not list(place.iterdir())


def test_too_many_entries(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untar, "MOST_ENTRIES", 50)
    with pytest.raises(BadBundle, match="more than 50 entries"):
        try_to_unpack(place, tar(*(member(f"{number}/a") for number in range(30))))
    assert not list(place.iterdir())


def test_a_bomb_is_noticed_before_it_is_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the part that fits the limit lands on disk when a header announces more."""
    written: list[int] = []
    monkeypatch.setattr(os, "fdopen", lambda *_: written.append(1))
    with pytest.raises(BadBundle, match="beyond the limit"):
        try_to_unpack(place, tar(member("a", bytes(20_000_000))))
    assert not written


def test_absolute_links_are_made_and_nothing_goes_through_them(place: Path) -> None:
    target = try_to_unpack(
        place, tar(link("data", "/mnt/data"), link("deep/up", "../data"), member("z", b"x"))
    )
    assert str((target / "data").readlink()) == "/mnt/data"
    assert str((target / "deep/up").readlink()) == "../data"


def test_a_foreign_but_harmless_archive_is_taken(place: Path) -> None:
    """Folders before their files, as other tools write them, and names split over the header's prefix."""
    long = "/".join(["some-folder"] * 12) + "/file"
    raw = tar(folder("a"), member("a/b", b"x", mode=0o777), member(long, b"y"), format=tarfile.USTAR_FORMAT)
    target = try_to_unpack(place, raw)
    assert (target / "a/b").stat().st_mode & 0o777 == 0o755
    assert (target / long).read_bytes() == b"y"


@settings(
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damage_never_reaches_outside(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes changed anywhere in an archive: refused or harmless, no other error, no file elsewhere."""
    raw = bytearray(
        tar(folder("d"), member("d/file", b"content"), link("l", "d/file"), member("é" * 60, b"x"))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(raw) - 1, 5000)))
        raw[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(list(b"\0 ./0125x"))))
    for start in range(0, 5120, 512):  # most changes would stop at the checksum: make it right again
        if raw[start + 257 : start + 262] == b"ustar":
            raw[start + 148 : start + 156] = b" " * 8
            raw[start + 148 : start + 156] = b"%06o\0 " % sum(raw[start : start + 512])
    place = tmp_path_factory.mktemp("place")
    (place / "inner").mkdir()
    try:
        target = try_to_unpack(place / "inner", bytes(raw))
    except BadBundle:
        assert not list((place / "inner").iterdir())
    else:
        assert list((place / "inner").iterdir()) == [target]
    assert list(place.iterdir()) == [place / "inner"]


def test_what_the_client_packs_is_sound(place: Path) -> None:
    data = pack_files({"a/b.py": b"x", "c": b""}).data
    assert (try_to_unpack(place, data, compress=False) / "a/b.py").read_bytes() == b"x"
