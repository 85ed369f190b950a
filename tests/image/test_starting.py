"""What an image starts, from a real registry."""

from __future__ import annotations

import pytest
from tests.image.bases import Base
from tests.image.registries import Registry

from echelon.errors import EchelonError
from echelon.image.starting import Start, read_start, start_in


@pytest.mark.slow  # a registry is built for it
def test_the_registry_tells(open_registry: Registry) -> None:
    said = {"Entrypoint": ["python", "/opt/mnist.py"], "Cmd": ["--epochs", "1"]}
    image = open_registry.push("started/mnist", "1", Base(config=said), Base(architecture="arm64"))
    assert read_start(image) == Start(entrypoint=("python", "/opt/mnist.py"), args=("--epochs", "1"))


@pytest.mark.slow
def test_an_image_that_is_not_there(open_registry: Registry) -> None:
    with pytest.raises(EchelonError):
        read_start(f"{open_registry.address}/started/nothing:1")


@pytest.mark.parametrize("config", [{}, {"config": None}, {"config": {"Entrypoint": None, "Cmd": "x"}}])
def test_an_image_that_says_nothing(config: dict[str, object]) -> None:
    assert start_in(config) == Start()
