"""The image format: a stranger's documents are believed only as far as they can be checked."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.image.bases import OCI, Base, descriptor, digest, index

from echelon.errors import EchelonError, InvalidJob, Refused, Unavailable
from echelon.image import oci
from echelon.image.oci import Descriptor, Platform, parse_platform

AMD, ARM = parse_platform("linux/amd64"), parse_platform("linux/arm64")


def described(data: bytes) -> Descriptor:
    return Descriptor(media_type="x", digest=digest(data), size=len(data))


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_a_blob_passes_in_whatever_pieces_it_comes(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    assert b"".join(oci.verified(pieces, described(whole), "it")) == whole


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=6), st.data())
def test_a_blob_that_is_not_what_was_promised_never_ends_well(
    pieces: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(pieces)
    kind = data.draw(st.sampled_from(["flip", "short", "long"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = {
        "flip": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
        "short": whole[:at],
        "long": whole + b"x",
    }[kind]
    passed: list[bytes] = []
    small = [changed[at : at + 3] for at in range(0, len(changed), 3)]
    with pytest.raises(Refused, match="not to be trusted"):
        passed.extend(oci.verified(small, described(whole), "it"))
    assert sum(map(len, passed)) < len(whole)  # so whoever receives it cannot take it for whole


def test_a_blob_that_never_ends_is_not_read_to_its_end() -> None:
    read = 0

    def endless() -> object:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 10

    with pytest.raises(Refused, match="has more"):
        list(oci.verified(endless(), described(b"x" * 95), "it"))  # type: ignore[arg-type]
    assert read == 10


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no",
        b"[]",
        b"3",
        b'"x"',
        b"null",
        b"{",
        b"\xff",
        b'{"a":NaN}',
        b"[" * 200_000,
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        oci.read_document(data, "it")


@pytest.mark.parametrize(
    "entry",
    [
        None, [], "x", {}, {"mediaType": "x"},
        {"mediaType": "x", "digest": "sha256:12", "size": 1},
        {"mediaType": "x", "digest": "sha512:" + "a" * 128, "size": 1},
        {"mediaType": "x", "digest": f"sha256:{'a' * 64}/../../etc", "size": 1},
        {"mediaType": "x", "digest": f"sha256:{'a' * 64}", "size": -1},
        {"mediaType": "x", "digest": f"sha256:{'a' * 64}", "size": "1"},
        {"mediaType": "x", "digest": f"sha256:{'a' * 64}", "size": True},
        {"mediaType": "x", "digest": f"sha256:{'a' * 64}", "size": 1 << 60},
        {"mediaType": 3, "digest": f"sha256:{'a' * 64}", "size": 1},
    ],
)  # fmt: skip
def test_strange_descriptors_are_refused_wherever_they_stand(entry: object) -> None:
    good = descriptor("x", b"x")
    with pytest.raises(Refused):
        oci.read_manifest({"config": entry, "layers": []}, "", "it")
    with pytest.raises(Refused):
        oci.read_manifest({"config": good, "layers": [good, entry]}, "", "it")
    with pytest.raises(Refused):
        oci.read_index({"manifests": [entry]}, "it")


KEYS = st.sampled_from(["manifests", "layers", "config", "platform", "mediaType", "digest", "size", "os"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(ANYTHING)
def test_no_document_makes_reading_it_fail_in_another_way(anything: object) -> None:
    document = (
        anything
        if isinstance(anything, dict)
        else {"manifests": anything, "layers": anything, "config": anything}
    )
    for read in (
        lambda: oci.choose(oci.read_index(document, "it"), AMD, "it"),
        lambda: oci.read_manifest(document, "", "it"),
        lambda: oci.kind_of(document, "", "it"),
        lambda: oci.platform_of(document, "it"),
    ):
        with suppress(EchelonError):
            read()  # type: ignore[no-untyped-call]


def test_the_image_for_a_platform_is_chosen() -> None:
    amd, arm = Base(), Base(architecture="arm64")
    choices = oci.read_index(json.loads(index(amd, arm, attested=True)), "it")
    assert oci.choose(choices, ARM, "it").image.digest == digest(arm.manifest)
    assert oci.choose(choices, AMD, "it").image.digest == digest(amd.manifest)
    assert oci.choose(choices, None, "it").image.digest == digest(amd.manifest)
    with pytest.raises(Unavailable, match="no image for linux/s390x") as caught:
        oci.choose(choices, parse_platform("linux/s390x"), "it")
    assert "linux/amd64, linux/arm64" in caught.value.hint
    assert "unknown" not in caught.value.hint


def test_an_image_that_stands_alone_is_taken_unless_another_is_wanted() -> None:
    arm = Base(architecture="arm64")
    choices = oci.read_index(json.loads(index(arm, attested=True)), "it")
    assert oci.choose(choices, None, "it").image.digest == digest(arm.manifest)
    with pytest.raises(Unavailable, match="no image for linux/amd64"):
        oci.choose(choices, AMD, "it")
    silent = oci.read_index({"manifests": [descriptor("x", b"x")]}, "it")
    assert oci.choose(silent, ARM, "it").image.digest == digest(b"x")


@pytest.mark.parametrize(
    ("wanted", "offered", "fits"),
    [
        ("linux/arm64", "linux/arm64/v8", True),
        ("linux/arm64/v8", "linux/arm64", True),
        ("linux/arm64/v9", "linux/arm64", False),
        ("linux/arm/v7", "linux/arm/v6", False),
        ("linux/arm/v7", "linux/arm/v7", True),
        ("linux/amd64", "linux/amd64/v3", False),
        ("linux/amd64/v3", "linux/amd64/v3", True),
        ("linux/amd64", "linux/386", False),
        ("linux/x86_64", "linux/amd64", True),
    ],
)
def test_which_platforms_are_the_same(wanted: str, offered: str, fits: bool) -> None:
    assert oci.matches(parse_platform(wanted), parse_platform(offered)) is fits


@pytest.mark.parametrize(
    "text", ["", "linux", "amd64", "linux/", "linux/amd64/v1/x", "windows/amd64", "linux/am d64"]
)
def test_what_is_no_platform_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="platform"):
        parse_platform(text)


def test_docker_and_oci_are_the_same_images() -> None:
    docker = Base(docker=True)
    read = oci.read_manifest(json.loads(docker.manifest), "", "it")
    assert read.config.media_type == oci.CONFIG
    assert [layer.media_type for layer in read.layers] == [oci.LAYER]
    assert oci.kind_of(json.loads(docker.manifest), "", "it") == oci.MANIFEST
    assert oci.kind_of(json.loads(index(docker, docker=True)), "", "it") == oci.INDEX
    assert oci.kind_of({"schemaVersion": 2}, f"{OCI}.manifest.v1+json; charset=utf-8", "it") == oci.MANIFEST


def test_a_document_without_a_type_is_what_it_holds() -> None:
    assert oci.kind_of({"schemaVersion": 2, "manifests": []}, "", "it") == oci.INDEX
    assert oci.kind_of({"schemaVersion": 2, "layers": []}, "", "it") == oci.MANIFEST
    for strange in (
        {"manifests": [], "layers": []},
        {"layers": [], "mediaType": "text/plain"},
        {"layers": 3},
    ):
        with pytest.raises(Refused, match="not a kind of image"):
            oci.kind_of({"schemaVersion": 2} | strange, "", "it")


def test_the_format_that_docker_left_is_named() -> None:
    with pytest.raises(Unavailable, match="schema 1"):
        oci.kind_of({"schemaVersion": 1}, "application/vnd.docker.distribution.manifest.v1+prettyjws", "it")


def test_what_is_written_is_always_the_same_and_can_be_read() -> None:
    document = {"b": "\ud800", "a": [1, {"d": None, "c": "é"}]}
    assert oci.encode(document) == oci.encode(dict(reversed(document.items())))
    assert oci.read_document(oci.encode(document), "it") == document


def test_platforms_are_written_as_people_write_them() -> None:
    assert str(Platform(os="linux", architecture="arm", variant="v7")) == "linux/arm/v7"
    assert str(AMD) == "linux/amd64"
