"""The distribution API against a real registry, and what happens when the way there is bad."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.image.bases import Base, digest
from tests.image.meddler import Asked, Change, Cut, Meddler, Said, Swallow
from tests.image.registries import Registry

from echelon.errors import Refused, Unavailable, Unreachable
from echelon.image import oci
from echelon.image.oci import Descriptor
from echelon.image.reference import Reference, parse_reference
from echelon.image.registry.repository import Repository

pytestmark = pytest.mark.slow  # the registry may have to be built first

CONTENT = bytes(range(256)) * 4096  # 1 MiB, no two neighbours alike


def described(data: bytes) -> Descriptor:
    return Descriptor(media_type="application/octet-stream", digest=digest(data), size=len(data))


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """No pauses between tries; the list has how long they would have been."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return "test/" + "-".join(re.findall(r"[a-z0-9]+", request.node.name.lower()))


@pytest.fixture
def open_repository(name: str) -> Iterator[Callable[..., Repository]]:
    made: list[Repository] = []

    def open_(address: str, right: str = "push", base: Reference | None = None) -> Repository:
        made.append(Repository(parse_reference("push", f"{address}/{name}:1"), right, base=base))
        return made[-1]

    yield open_
    for each in made:
        each.close()


def pieces(data: bytes, size: int = 10_000) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def test_a_blob_goes_there_and_comes_back(
    open_registry: Registry, open_repository: Callable[..., Repository]
) -> None:
    repository = open_repository(open_registry.address)
    blob = described(CONTENT)
    assert not repository.has(blob)
    assert repository.send(blob, lambda: pieces(CONTENT)) == "sent"
    assert repository.has(blob)
    assert b"".join(repository.blob(blob)) == CONTENT


def test_nothing_is_a_blob_too(open_registry: Registry, open_repository: Callable[..., Repository]) -> None:
    repository = open_repository(open_registry.address)
    repository.send(described(b""), lambda: iter(()))
    assert b"".join(repository.blob(described(b""))) == b""


def test_a_layer_of_the_same_registry_is_mounted_not_sent(
    open_registry: Registry, open_repository: Callable[..., Repository]
) -> None:
    base = Base(content=b"to be mounted")
    source = parse_reference("base", open_registry.push("test/mounted-from", "1", base))
    repository = open_repository(open_registry.address, base=source)

    def never() -> Iterator[bytes]:
        raise AssertionError("it was read")

    assert repository.send(described(base.layer), never) == "mounted"
    assert b"".join(repository.blob(described(base.layer))) == base.layer


def test_a_manifest_is_there_under_its_name_and_its_digest(
    open_registry: Registry, open_repository: Callable[..., Repository], name: str
) -> None:
    base, repository = Base(), open_repository(open_registry.address)
    for blob in base.blobs():
        repository.send(described(blob), lambda blob=blob: iter((blob,)))  # type: ignore[misc]
    assert open_registry.tags(name) == []
    assert repository.put_manifest("1", base.manifest) == digest(base.manifest)
    assert open_registry.tags(name) == ["1"]
    for which in ("1", digest(base.manifest)):
        assert repository.document(which) == (base.manifest, oci.MANIFEST)


def test_what_is_not_there_is_said(
    open_registry: Registry, open_repository: Callable[..., Repository], name: str
) -> None:
    with pytest.raises(Unavailable, match=f"there is no image {open_registry.address}/{name}:1"):
        open_repository(open_registry.address, "pull").document("1")
    with pytest.raises(Refused, match="MANIFEST_BLOB_UNKNOWN"):
        open_repository(open_registry.address).put_manifest("1", Base(content=b"never sent").manifest)


def test_asking_for_the_right_leaves_no_upload(
    open_registry: Registry, meddler: Meddler, open_repository: Callable[..., Repository]
) -> None:
    open_repository(meddler.address).check_right()
    begun, given_up = (each for each in meddler.asked if each.method in ("POST", "DELETE"))
    assert (begun.method, given_up.method) == ("POST", "DELETE")
    assert open_registry.get(given_up.path)[0] == 404


def test_one_connection_serves_many_requests(
    meddler: Meddler, open_repository: Callable[..., Repository]
) -> None:
    base, repository = Base(), open_repository(meddler.address)
    repository.check_right()
    before = meddler.connections
    for blob in base.blobs():
        repository.has(described(blob))
        repository.send(described(blob), lambda blob=blob: iter((blob,)))  # type: ignore[misc]
    repository.put_manifest("1", base.manifest)
    repository.document("1")
    assert meddler.connections == before


def test_cookies_are_not_kept(meddler: Meddler, open_repository: Callable[..., Repository]) -> None:
    meddler.rule = lambda _asked: Said(status=404, headers={"Set-Cookie": "session=1; Path=/"})
    repository = open_repository(meddler.address)
    for _ in range(2):
        repository.has(described(b"x"))
    assert not [each for each in meddler.asked if "Cookie" in each.headers]


def test_a_large_blob_is_not_held_in_memory(
    open_registry: Registry, open_repository: Callable[..., Repository]
) -> None:
    repository = open_repository(open_registry.address)
    piece, count = bytes(1 << 20), 64
    blob = described(piece * count)
    tracemalloc.start()
    try:
        repository.send(blob, lambda: (piece for _ in range(count)))
        for _ in repository.blob(blob):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_a_download_that_breaks_goes_on_where_it_broke(
    open_registry: Registry, meddler: Meddler, open_repository: Callable[..., Repository], hurry: list[float]
) -> None:
    blob = described(CONTENT)
    open_repository(open_registry.address).send(blob, lambda: pieces(CONTENT))
    meddler.once(Cut(after=600_000), method="GET", part="/blobs/")
    assert b"".join(open_repository(meddler.address, "pull").blob(blob)) == CONTENT
    asked = [each for each in meddler.asked if each.method == "GET"]
    assert [each.headers.get("Range") for each in asked] == [None, "bytes=600000-"]


def test_a_registry_that_cannot_begin_in_the_middle_begins_anew(
    open_registry: Registry, meddler: Meddler, open_repository: Callable[..., Repository], hurry: list[float]
) -> None:
    blob = described(CONTENT)
    open_repository(open_registry.address).send(blob, lambda: pieces(CONTENT))
    first: list[Asked] = []

    def rule(asked: Asked) -> Cut | Said | None:
        if asked.method != "GET" or "/blobs/" not in asked.path:
            return None
        first.append(asked)
        return Cut(after=600_000) if len(first) == 1 else Said(status=200, body=CONTENT)

    meddler.rule = rule
    assert b"".join(open_repository(meddler.address, "pull").blob(blob)) == CONTENT


def test_an_upload_that_breaks_is_begun_anew(
    meddler: Meddler, open_repository: Callable[..., Repository], hurry: list[float]
) -> None:
    meddler.once(Swallow(after=300_000), method="PUT", part="/blobs/uploads/")
    repository = open_repository(meddler.address)
    assert repository.send(described(CONTENT), lambda: pieces(CONTENT)) == "sent"
    assert repository.has(described(CONTENT))
    assert [each.method for each in meddler.asked].count("POST") == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_registry_that_is_busy_is_asked_again_when_it_says(
    meddler: Meddler, open_repository: Callable[..., Repository], hurry: list[float], status: int
) -> None:
    busy = Said(status=status, headers={"Retry-After": "7"}, body=b'{"errors":[{"code":"TOOMANYREQUESTS"}]}')
    meddler.once(busy, method="HEAD", part="/blobs/")
    assert open_repository(meddler.address).has(described(b"x")) is False
    assert hurry == [7.0]


def test_patience_ends(
    meddler: Meddler, open_repository: Callable[..., Repository], hurry: list[float]
) -> None:
    meddler.rule = lambda _asked: Said(status=503, headers={"Retry-After": "100000"})
    with pytest.raises(Unreachable, match="cannot answer now: status 503"):
        open_repository(meddler.address).has(described(b"x"))
    assert hurry == [30.0] * 4


def test_nobody_answers(open_repository: Callable[..., Repository], hurry: list[float]) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer: .*refused"):
        open_repository("127.0.0.1:1").has(described(b"x"))
    assert len(hurry) == 4


def test_no_such_host_is_not_waited_for(hurry: list[float]) -> None:
    repository = Repository(parse_reference("push", "registry.invalid/x"), "pull")
    with pytest.raises(Unreachable, match=r"registry\.invalid does not answer"):
        repository.document("1")
    repository.close()
    assert hurry == []


def corrupt(content: bytes) -> bytes:
    return content[:5] + bytes([content[5] ^ 1]) + content[6:]


@pytest.mark.parametrize(
    "change",
    [corrupt, lambda body: body[:-1], lambda body: body + b"x", lambda _body: b""],
    ids=["flipped", "short", "long", "none"],
)
def test_a_blob_that_was_changed_is_refused(
    open_registry: Registry,
    meddler: Meddler,
    open_repository: Callable[..., Repository],
    change: Callable[[bytes], bytes],
) -> None:
    blob = described(CONTENT)
    open_repository(open_registry.address).send(blob, lambda: pieces(CONTENT))
    meddler.once(Change(by=change), method="GET", part="/blobs/")
    received: list[bytes] = []
    with pytest.raises(Refused, match="not to be trusted"):
        received.extend(open_repository(meddler.address, "pull").blob(blob))
    assert sum(map(len, received)) < blob.size


def test_a_manifest_without_end_is_refused(
    meddler: Meddler, open_repository: Callable[..., Repository]
) -> None:
    meddler.rule = lambda _asked: Said(status=200, body=b" " * (oci.LARGEST_DOCUMENT + 1))
    with pytest.raises(Refused, match="larger than"):
        open_repository(meddler.address, "pull").document("1")


def test_a_registry_that_stores_something_else_is_not_believed(
    meddler: Meddler, open_repository: Callable[..., Repository]
) -> None:
    other = {"Docker-Content-Digest": digest(b"other")}
    meddler.rule = lambda asked: Said(status=201, headers=other) if asked.method == "PUT" else None
    repository = open_repository(meddler.address)
    with pytest.raises(Refused, match="has stored"):
        repository.send(described(CONTENT), lambda: pieces(CONTENT))
    with pytest.raises(Refused, match="has stored"):
        repository.put_manifest("1", b"{}")


@pytest.mark.parametrize("location", ["", "ftp://elsewhere/x", "http://[::1"])
def test_a_strange_place_to_upload_to_is_refused(
    meddler: Meddler, open_repository: Callable[..., Repository], location: str
) -> None:
    headers = {"Location": location} if location else {}
    meddler.rule = lambda asked: Said(status=202, headers=headers) if asked.method == "POST" else None
    with pytest.raises(Refused):
        open_repository(meddler.address).send(described(b"x"), lambda: iter((b"x",)))


def test_a_blob_from_elsewhere_is_fetched_there_without_our_token(
    open_registry: Registry,
    meddler: Meddler,
    nobody: Path,
    open_repository: Callable[..., Repository],
    name: str,
) -> None:
    blob = described(CONTENT)
    open_repository(open_registry.address).send(blob, lambda: pieces(CONTENT))
    login = {"auths": {meddler.address: {"registrytoken": "token-of-ann"}}}
    (nobody / "config.json").write_text(json.dumps(login))
    with Meddler(open_registry.address) as elsewhere:
        place = f"http://{elsewhere.address}/v2/{name}/blobs/{blob.digest}"

        def rule(asked: Asked) -> Said:
            if "Authorization" not in asked.headers:
                return Said(status=401, headers={"WWW-Authenticate": 'Bearer realm="http://127.0.0.1:1/"'})
            return Said(status=307, headers={"Location": place})

        meddler.rule = rule
        assert b"".join(open_repository(meddler.address, "pull").blob(blob)) == CONTENT
        assert [each.headers.get("Authorization") for each in meddler.asked if each.method == "GET"] == [
            None,
            "Bearer token-of-ann",
        ]
        assert [each.headers.get("Authorization") for each in elsewhere.asked] == [None]


def test_an_upload_elsewhere_goes_there_without_our_token(
    open_registry: Registry, meddler: Meddler, nobody: Path, open_repository: Callable[..., Repository]
) -> None:
    login = {"auths": {meddler.address: {"registrytoken": "token-of-ann"}}}
    (nobody / "config.json").write_text(json.dumps(login))
    with Meddler(open_registry.address) as elsewhere:
        elsewhere.rule = lambda _asked: Said(status=201)

        def rule(asked: Asked) -> Said:
            if "Authorization" not in asked.headers:
                return Said(status=401, headers={"WWW-Authenticate": 'Bearer realm="http://127.0.0.1:1/"'})
            return Said(status=202, headers={"Location": f"http://{elsewhere.address}/upload"})

        meddler.rule = rule
        open_repository(meddler.address).send(described(b"x"), lambda: iter((b"x",)))
        assert [each.headers.get("Authorization") for each in elsewhere.asked] == [None]
        assert "digest=sha256" in elsewhere.asked[0].path
