"""The new image's documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.image.bases import Base, digest

from echelon.errors import Refused
from echelon.image import oci
from echelon.image.compose import Layer, compose, environment_of
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
