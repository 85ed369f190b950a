"""The whole story against a real registry: same input, same digest; nothing broken is left behind."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.image.bases import Base, descriptor, digest, index, write_layout
from tests.image.meddler import Asked, Change, Meddler, Said
from tests.image.registries import Registry
from tests.image.wheel_files import make_wheel

from echelon.errors import CannotShip, Denied, EchelonError, InvalidJob, Refused, Unavailable
from echelon.image import build as building
from echelon.image import oci
from echelon.image.archive import Archive
from echelon.image.build import Built, Recipe, build
from echelon.image.oci import parse_platform
from echelon.image.registry.repository import Repository

pytestmark = pytest.mark.slow  # the registry may have to be built first


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return "build/" + "-".join(request.node.originalname.lower().split("_"))


@pytest.fixture
def base(open_registry: Registry, name: str) -> str:
    """A tiny base in the open registry."""
    return open_registry.push(f"{name}/base", "1", Base(content=name.encode()))


@pytest.fixture
def make(project: Path) -> Callable[..., Built]:
    """Build, and remember what was said."""

    def make(base: str, push: str = "", **more: object) -> Built:
        said: list[str] = []
        return build(Recipe(base=base, push=push, project=project, **more), said.append)  # type: ignore[arg-type]

    return make


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wheels that need no network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for each in [key for key in os.environ if key.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(each)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    make_wheel(folder, "extra", commands=["extra-cli"])
    return folder


def unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_the_image_has_the_base_the_packages_and_the_project(
    open_registry: Registry, base: str, name: str, make: Callable[..., Built], shelf: Path
) -> None:
    built = make(base, f"{open_registry.address}/{name}:1", packages=("extra",))
    manifest = open_registry.manifest(name, "1")
    layers = [open_registry.blob(name, each["digest"]) for each in manifest["layers"]]
    config = json.loads(open_registry.blob(name, manifest["config"]["digest"]))
    assert [digest(gzip.decompress(layer)) for layer in layers] == config["rootfs"]["diff_ids"]
    assert unpacked(layers[0]) == {"etc/base": name.encode()}
    assert b"VERSION" in unpacked(layers[1])["echelon/site/extra/__init__.py"]
    assert unpacked(layers[2])["workspace/package/__init__.py"] == b"GREETING = 'hello'\n"
    assert "workspace/secret.txt" not in unpacked(layers[2])
    assert "PYTHONPATH=/echelon/site" in config["config"]["Env"]
    assert "PATH=/usr/bin:/echelon/site/bin" in config["config"]["Env"]
    assert config["config"]["WorkingDir"] == "/workspace"
    assert built.image == f"{open_registry.address}/{name}:1@{built.digest}"
    assert open_registry.get(f"/v2/{name}/manifests/{built.digest}")[0] == 200
    assert [layer.origin for layer in built.layers] == ["base", "packages", "project"]
    assert [layer.digest for layer in built.layers] == [each["digest"] for each in manifest["layers"]]
    assert built.platform == "linux/amd64"


def test_the_same_input_gives_the_same_digest_and_a_change_another(
    open_registry: Registry,
    base: str,
    name: str,
    make: Callable[..., Built],
    shelf: Path,
    project: Path,
    tmp_path: Path,
) -> None:
    target = f"{open_registry.address}/{name}:1"
    first = make(base, target, packages=("extra",))
    # Another checkout, another time, another umask, another place of the wheels' cache.
    other = tmp_path / "elsewhere" / "checkout"
    before = os.umask(0o077)
    try:
        shutil.copytree(project, other, copy_function=shutil.copyfile)
        (other / "run.sh").chmod(0o700)
        again = build(Recipe(base=base, push=target, project=other, packages=("extra",)), print)
    finally:
        os.umask(before)
    assert again == first
    (project / "train.py").write_text("print('changed')\n")
    changed = make(base, target, packages=("extra",))
    assert changed.digest != first.digest
    assert changed.layers[:2] == first.layers[:2]


def test_layers_of_another_registry_are_copied(
    open_registry: Registry,
    start_registry: Callable[..., Registry],
    base: str,
    name: str,
    make: Callable[..., Built],
) -> None:
    other = start_registry()
    built = make(base, f"{other.address}/{name}:1")
    assert digest(other.blob(name, built.layers[0].digest)) == built.layers[0].digest
    assert other.manifest(name, built.digest)["layers"][0]["digest"] == built.layers[0].digest


def test_an_archive_instead_of_a_push(
    tmp_path: Path, base: str, make: Callable[..., Built], open_registry: Registry, name: str
) -> None:
    built = make(base, to=tmp_path / "image.tar", name="me/trainer:1")
    assert built.image == ""
    assert built.archive == str(tmp_path / "image.tar")
    with closing(Archive(tmp_path / "image.tar")) as archive:
        (entry,) = json.loads(archive.document("")[0])["manifests"]
        assert entry["digest"] == built.digest
        assert entry["annotations"]["io.containerd.image.name"] == "docker.io/me/trainer:1"
        for layer in built.layers:
            blob = oci.Descriptor(media_type="", digest=layer.digest, size=layer.size)
            assert digest(b"".join(archive.blob(blob))) == layer.digest
    # And the archive is a base as good as any, which needs no registry.
    pushed = make(f"oci-archive:{tmp_path / 'image.tar'}", f"{open_registry.address}/{name}:2")
    assert [layer.digest for layer in pushed.layers[:-1]] == [layer.digest for layer in built.layers]


def test_both_download_the_base_once(
    meddler: Meddler,
    start_registry: Callable[..., Registry],
    base: str,
    name: str,
    tmp_path: Path,
    make: Callable[..., Built],
) -> None:
    other = start_registry()
    through = base.replace(base.partition("/")[0], meddler.address)
    built = make(through, f"{other.address}/{name}:1", to=tmp_path / "image.tar")
    layer = built.layers[0].digest
    assert len([each for each in meddler.asked if each.method == "GET" and layer in each.path]) == 1
    assert other.manifest(name, "1")["layers"][0]["digest"] == layer


def test_the_platform_chooses_the_image(
    open_registry: Registry, name: str, make: Callable[..., Built], tmp_path: Path
) -> None:
    amd, arm = Base(content=b"for amd"), Base(architecture="arm64", content=b"for arm")
    both = open_registry.push(f"{name}/base", "both", amd, arm)
    to = tmp_path / "image.tar"
    built = make(both, to=to, platform=parse_platform("linux/arm64"))
    assert (built.platform, built.layers[0].digest) == ("linux/arm64", digest(arm.layer))
    assert make(both, to=to).layers[0].digest == digest(amd.layer)
    with pytest.raises(Unavailable, match="no image for linux/s390x"):
        make(both, to=to, platform=parse_platform("linux/s390x"))

    alone = open_registry.push(f"{name}/base", "arm", arm)
    assert make(alone, to=to).platform == "linux/arm64"
    with pytest.raises(Unavailable, match="is an image for linux/arm64, and linux/amd64 is wanted"):
        make(alone, to=to, platform=parse_platform("linux/amd64"))


def test_a_base_by_digest(
    open_registry: Registry, name: str, make: Callable[..., Built], tmp_path: Path
) -> None:
    one = Base(content=b"one")
    open_registry.push(f"{name}/base", "1", one)
    open_registry.push(f"{name}/base", "1", Base(content=b"two"))
    pinned = f"{open_registry.address}/{name}/base@{digest(one.manifest)}"
    built = make(pinned, to=tmp_path / "image.tar")
    assert built.layers[0].digest == digest(one.layer)
    assert built.base == pinned


def test_an_image_of_docker_becomes_one_of_oci(
    open_registry: Registry, name: str, make: Callable[..., Built]
) -> None:
    base = open_registry.push(f"{name}/base", "1", Base(docker=True))
    make(base, f"{open_registry.address}/{name}:1")
    manifest = open_registry.manifest(name, "1")
    assert manifest["mediaType"] == oci.MANIFEST
    assert manifest["config"]["mediaType"] == oci.CONFIG
    assert {layer["mediaType"] for layer in manifest["layers"]} == {oci.LAYER}


def test_a_base_that_does_not_name_its_python(
    open_registry: Registry, name: str, make: Callable[..., Built], shelf: Path, tmp_path: Path
) -> None:
    base = open_registry.push(f"{name}/base", "1", Base(variables=()))
    with pytest.raises(Unavailable, match="does not say which Python it has") as caught:
        make(base, to=tmp_path / "image.tar", packages=("extra",))
    assert "--python" in caught.value.hint
    make(base, to=tmp_path / "image.tar", packages=("extra",), python="3.12")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "push"),
        ({"push": "Not/A:Name"}, "push"),
        ({"push": f"a.io/x@sha256:{'a' * 64}"}, "push"),
        ({"to": Path("/nowhere/image.tar")}, "to"),
        ({"to": Path("image.tar"), "name": "NO"}, "name"),
        ({"to": Path("image.tar"), "base": "a b"}, "base"),
        ({"to": Path("image.tar"), "packages": ("-r",)}, "pip"),
        ({"to": Path("image.tar"), "requirements": (Path("gone.txt"),)}, "requirements"),
        ({"to": Path("image.tar"), "python": "2.7"}, "python"),
        ({"to": Path("image.tar"), "plain_http": ("elsewhere",)}, "plain-http"),
    ],
)
def test_wrong_values_are_refused_before_anybody_is_asked(
    make: Callable[..., Built], settings: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        make(**({"base": "127.0.0.1:1/nobody/there"} | settings))
    assert caught.value.field == field


def test_a_project_that_cannot_be_shipped(
    base: str, tmp_path: Path, project: Path, make: Callable[..., Built]
) -> None:
    with pytest.raises(InvalidJob, match="matches nothing"):
        make(base, to=tmp_path / "image.tar", include=("nothing-here",))
    with pytest.raises(CannotShip):
        build(Recipe(base=base, to=tmp_path / "image.tar", project=tmp_path / "gone"), print)
    included = make(base, to=tmp_path / "image.tar", include=("secret.txt",))
    assert included.layers != make(base, to=tmp_path / "image.tar").layers


def test_what_looks_like_a_secret_is_never_packed(
    base: str, tmp_path: Path, project: Path, make: Callable[..., Built]
) -> None:
    plain = make(base, to=tmp_path / "image.tar")
    (project / ".env").write_text("TOKEN=hunter2")
    built = make(base, to=tmp_path / "image.tar", include=(".env",))
    assert built.layers == plain.layers
    assert ".env looks like a secret: it is not in the image" in built.notes
    (project / ".echelonignore").write_text("!.env\n.echelonignore\n")
    built = make(base, to=tmp_path / "image.tar")
    assert built.layers == plain.layers
    assert ".env looks like a secret: it is not in the image" in built.notes


def test_a_push_that_is_not_allowed_is_known_before_the_work_begins(
    base: str, name: str, make: Callable[..., Built], meddler: Meddler, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}'
    meddler.rule = lambda asked: Said(status=403, body=body) if asked.method == "POST" else None
    monkeypatch.setattr(building, "install", lambda *_: pytest.fail("packages were installed"))
    with pytest.raises(Denied, match=f"lacks the right to push {meddler.address}/{name}") as caught:
        make(base, f"{meddler.address}/{name}:1", packages=("extra",))
    assert "requested access to the resource is denied" in caught.value.message


@pytest.mark.parametrize("moment", ["has", "send", "put_manifest"])
def test_an_interrupted_push_changes_no_tag_and_is_taken_up_by_repeating_it(
    open_registry: Registry,
    base: str,
    name: str,
    make: Callable[..., Built],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    name = f"{name}/{moment.replace('_', '-')}"
    target = f"{open_registry.address}/{name}:1"
    first = make(base, target)
    (project / "train.py").write_text("print('changed')\n")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Repository, moment, interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(base, target)
    assert digest(open_registry.get(f"/v2/{name}/manifests/1")[1]) == first.digest
    second = make(base, target)
    assert digest(open_registry.get(f"/v2/{name}/manifests/1")[1]) == second.digest != first.digest


def test_a_base_whose_layer_was_changed_on_the_way_is_not_pushed(
    meddler: Meddler,
    start_registry: Callable[..., Registry],
    base: str,
    name: str,
    tmp_path: Path,
    make: Callable[..., Built],
) -> None:
    other = start_registry()
    layer = digest(Base(content=name.encode()).layer)
    flip = Change(by=lambda body: body[:-1] + bytes([body[-1] ^ 1]))
    meddler.rule = lambda asked: flip if asked.method == "GET" and layer in asked.path else None
    through = base.replace(base.partition("/")[0], meddler.address)
    with pytest.raises(Refused, match="not to be trusted"):
        make(through, f"{other.address}/{name}:1")
    assert other.tags(name) == []
    with pytest.raises(Refused, match="not to be trusted"):
        make(through, to=tmp_path / "image.tar")
    assert not (tmp_path / "image.tar").exists()


def hostile() -> Iterator[tuple[str, bytes, str]]:
    base = Base()
    honest = json.loads(base.manifest)
    yield "no json", b"<html>", "not JSON"
    yield "no kind", b"{}", "not a kind of image"
    yield "no layers", oci.encode(honest | {"layers": 3}), "layers are not a list"
    yield (
        "a path for a digest",
        oci.encode(honest | {"config": {**honest["config"], "digest": "../../x"}}),
        "not a sha256 digest",
    )
    yield (
        "a huge configuration",
        oci.encode(honest | {"config": {**honest["config"], "size": 1 << 40}}),
        "too large",
    )
    yield (
        "an index of itself",
        oci.encode({"mediaType": oci.INDEX, "manifests": [descriptor("x", b"x")]}),
        "not to be trusted",
    )
    yield "an empty index", oci.encode({"mediaType": oci.INDEX, "manifests": []}), "no image for"
    yield "another layer count", oci.encode(honest | {"layers": honest["layers"] * 2}), "contradicts itself"


@pytest.mark.parametrize(
    ("manifest", "said"), [each[1:] for each in hostile()], ids=[each[0] for each in hostile()]
)
def test_hostile_manifests_are_refused(
    meddler: Meddler, base: str, tmp_path: Path, make: Callable[..., Built], manifest: bytes, said: str
) -> None:
    real = Base()

    def rule(asked: Asked) -> Said | None:
        if "/manifests/" in asked.path:
            return Said(status=200, body=manifest, headers={"Content-Type": "application/json"})
        if digest(real.config) in asked.path:
            return Said(status=200, body=real.config)
        return None

    meddler.rule = rule
    with pytest.raises(EchelonError, match=said):
        make(base.replace(base.partition("/")[0], meddler.address), to=tmp_path / "image.tar")
    assert not (tmp_path / "image.tar").exists()


def test_indexes_that_lead_nowhere_are_left(tmp_path: Path, make: Callable[..., Built]) -> None:
    deep = index(Base())
    changed = {}
    for _ in range(5):
        changed[f"blobs/{digest(deep).replace(':', '/')}"] = deep
        deep = oci.encode(
            {"mediaType": oci.INDEX, "schemaVersion": 2, "manifests": [descriptor(oci.INDEX, deep)]}
        )
    path = write_layout(tmp_path / "base.tar", Base(), changed=changed | {"index.json": deep})
    with pytest.raises(Unavailable, match="from index to index"):
        make(f"oci-archive:{path}", to=tmp_path / "image.tar")


def test_nothing_is_left_in_the_temporary_folder(
    base: str, tmp_path: Path, make: Callable[..., Built], shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    make(base, to=tmp_path / "image.tar", packages=("extra",))
    with pytest.raises(Unavailable):
        make(base, to=tmp_path / "image.tar", packages=("not-on-the-shelf",))
    assert list(scratch.iterdir()) == []
