"""Layers: the same files give the same bytes, wherever and whenever."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.image.bases import Base, digest

from echelon.bundle.survey import survey
from echelon.errors import CannotShip, Refused
from echelon.image import layer, oci
from echelon.image.layer import Layer, compose, environment_of
from echelon.image.oci import Descriptor

PROJECT = Layer(
    origin="project",
    blob=Descriptor(media_type=oci.LAYER, digest=digest(b"p"), size=1),
    tar_digest=digest(b"P"),
)
PACKAGES = Layer(
    origin="packages",
    blob=Descriptor(media_type=oci.LAYER, digest=digest(b"k"), size=2),
    tar_digest=digest(b"K"),
)
PROGRAMS = Layer(origin="packages", blob=PACKAGES.blob, tar_digest=PACKAGES.tar_digest, has_programs=True)


def composed(base: Base, *layers: Layer) -> tuple[dict[str, Any], dict[str, Any]]:
    manifest = oci.read_manifest(json.loads(base.manifest), digest(base.manifest), "it")
    made = compose(manifest, json.loads(base.config), layers, base_name="it")
    return json.loads(made.manifest), json.loads(made.config)


def test_layers_are_put_on_top_and_everything_else_stays() -> None:
    base = Base()
    manifest, config = composed(base, PACKAGES, PROJECT)
    before = json.loads(base.config)
    assert [layer["digest"] for layer in manifest["layers"]] == [
        digest(base.layer),
        digest(b"k"),
        digest(b"p"),
    ]
    assert config["rootfs"]["diff_ids"] == [*before["rootfs"]["diff_ids"], digest(b"K"), digest(b"P")]
    assert len(config["history"]) == 3
    assert config["config"]["User"] == "1000"
    assert config["config"]["Cmd"] == ["/bin/sh"]
    assert config["config"]["Labels"] == {"a": "b"}
    assert config["config"]["WorkingDir"] == "/workspace"
    assert manifest["annotations"]["org.opencontainers.image.base.digest"] == digest(base.manifest)
    assert manifest["config"]["digest"] == digest(oci.encode(config))


def test_packages_are_found_before_those_of_the_base_and_commands_after() -> None:
    _, config = composed(Base(variables=("PATH=/opt/bin:/usr/bin", "PYTHONPATH=/opt/lib", "A=b=c")), PROGRAMS)
    variables = environment_of(config)
    assert variables["PYTHONPATH"] == "/echelon/site:/opt/lib"
    assert variables["PATH"] == "/opt/bin:/usr/bin:/echelon/site/bin"
    assert variables["A"] == "b=c"
    assert "WorkingDir" not in config["config"]


def test_without_packages_no_variable_changes() -> None:
    _, config = composed(Base(variables=("A=b",)), PROJECT)
    assert config["config"]["Env"] == ["A=b"]


def test_a_base_without_path_keeps_the_usual_one() -> None:
    _, config = composed(Base(variables=()), PROGRAMS)
    assert environment_of(config)["PATH"] == (
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/echelon/site/bin"
    )
    _, config = composed(Base(variables=()), PACKAGES)
    assert "PATH" not in environment_of(config)


def test_building_on_our_own_image_adds_nothing_twice() -> None:
    _, config = composed(Base(variables=("PYTHONPATH=/echelon/site",)), PACKAGES)
    assert environment_of(config)["PYTHONPATH"] == "/echelon/site"


@pytest.mark.parametrize("settings", [None, [], "x", {"Env": None}, {"Env": [3, "A=b"]}])
def test_strange_settings_of_a_base_do_no_harm(settings: object) -> None:
    _, config = composed(Base(config=settings), PROJECT)
    assert config["config"]["WorkingDir"] == "/workspace"


@pytest.mark.parametrize(
    "rootfs", [None, {}, [], {"diff_ids": []}, {"diff_ids": ["a", "b"]}, {"diff_ids": "a"}]
)
def test_a_base_that_contradicts_itself_is_refused(rootfs: object) -> None:
    with pytest.raises(Refused, match="contradicts itself"):
        composed(Base(rootfs=rootfs), PROJECT)


def test_a_base_without_history_gets_none() -> None:
    _, config = composed(Base(history=None), PROJECT)
    assert config["history"] is None


def pack(root: Path, below: str = "/workspace") -> tuple[Layer, bytes]:
    with layer.packed("project", root, layer.list_tree(root), below) as (made, file):
        data = b"".join(layer.read(file))
        assert b"".join(layer.read(file)) == data  # as often as somebody must send it again
    return made, data


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return {member.name: member for member in tar}


def test_digests_are_those_of_the_blob_and_of_the_tar_in_it(project: Path) -> None:
    made, data = pack(project)
    assert made.blob.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert made.blob.size == len(data)
    assert made.tar_digest == f"sha256:{hashlib.sha256(gzip.decompress(data)).hexdigest()}"


def test_files_lie_below_their_folder_owned_by_root_and_without_times(project: Path) -> None:
    _, data = pack(project)
    found = members(data)
    assert next(iter(found)) == "workspace"
    assert found["workspace"].isdir()
    assert found["workspace/package/__init__.py"].isfile()
    assert found["workspace/run.sh"].mode == 0o755
    assert found["workspace/train.py"].mode == 0o644
    assert {(each.uid, each.gid, each.uname, each.gname) for each in found.values()} == {(0, 0, "", "")}
    assert len({each.mtime for each in found.values()}) == 1
    # What is made from these files in the image may be a zip, which knows no time before 1980.
    assert {each.mtime for each in found.values()} == {315532800}


def test_a_folder_comes_before_what_is_in_it(project: Path) -> None:
    (project / "a" / "b" / "c").mkdir(parents=True)
    (project / "a" / "b" / "c" / "d").touch()
    (project / "a.b").touch()
    names = list(members(pack(project, "/deep/down")[1]))
    assert names[:2] == ["deep", "deep/down"]
    assert len(names) == len(set(names))
    for at, name in enumerate(names):
        above = name.rpartition("/")[0]
        assert not above or above in names[:at]


def test_times_owners_order_and_permissions_do_not_matter(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    names = [f"file-{number}" for number in range(20)]
    for root, order, mode in ((one, names, 0o600), (two, list(reversed(names)), 0o664)):
        (root / "folder").mkdir(parents=True)
        for name in order:
            path = root / "folder" / name
            path.write_text(name)
            path.chmod(mode)
        (root / "link").symlink_to("folder/file-1")
        (root / "empty").mkdir(mode=0o700 if root == one else 0o777)
    os.utime(two / "folder" / "file-3", (1, 1))
    assert pack(one)[0] == pack(two)[0]
    (two / "folder" / "file-3").chmod(0o700)
    assert pack(one)[0] != pack(two)[0]


def test_links_stay_links_and_empty_folders_stay(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "empty").mkdir(parents=True)
    (root / "file").touch()
    (root / "link").symlink_to("file")
    (root / "to-folder").symlink_to("empty")
    (root / "only-a-link").mkdir()
    (root / "only-a-link" / "up").symlink_to("..")
    found = members(pack(root)[1])
    assert found["workspace/link"].linkname == "file"
    assert found["workspace/to-folder"].issym()
    assert found["workspace/only-a-link/up"].linkname == ".."
    assert found["workspace/empty"].isdir()


def test_any_name_travels(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    long = "/".join(["x" * 200] * 3)
    (root / long).parent.mkdir(parents=True)
    (root / long).write_text("long")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_text("bytes")
    (root / "é ").write_text("accent")
    names = [os.fsencode(name) for name in members(pack(root)[1])]
    assert {b"workspace/" + long.encode(), b"workspace/\xff\xfe", "workspace/é ".encode()} <= set(names)


def test_nothing_at_all_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert list(members(pack(tmp_path / "root")[1])) == ["workspace"]


def test_a_project_is_packed_by_the_rules_of_shipping(project: Path) -> None:
    surveyed = survey(project)
    with layer.packed("project", surveyed.root, surveyed.found, "/workspace") as (_, file):
        names = set(members(b"".join(layer.read(file))))
    assert "workspace/train.py" in names
    assert "workspace/secret.txt" not in names


def test_a_file_that_changes_meanwhile_is_named(project: Path) -> None:
    found = layer.list_tree(project)
    (project / "train.py").write_text("something else, and longer than before")
    with (
        pytest.raises(CannotShip, match=r"train\.py changed"),
        layer.packed("project", project, found, "/workspace"),
    ):
        pass


def test_whatever_ends_the_packing_leaves_no_file(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with layer.packed("project", project, layer.list_tree(project), "/workspace"):
        assert list(scratch.iterdir()) == []  # not even now: a SIGKILL cleans up nothing
