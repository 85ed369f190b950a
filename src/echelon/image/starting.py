"""What a container of an image starts where no command is given: the image's entrypoint and arguments."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from echelon.image.build import Recipe, read_base
from echelon.image.reference import parse_reference
from echelon.image.registry.repository import Repository
from echelon.values import frozen


@frozen
class Start:
    """ENTRYPOINT and CMD of an image."""

    entrypoint: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


def read_start(image: str) -> Start:
    """Read it from the image's registry; raises an EchelonError where that cannot be."""
    reference = parse_reference("image", image)
    with closing(Repository(reference, "pull")) as repository:
        _, config, _ = read_base(Recipe(base=image, project=Path()), repository, reference)
    return start_in(config)


def start_in(config: dict[str, Any]) -> Start:
    """What an image's configuration says."""
    settings = config.get("config")
    said = settings if isinstance(settings, dict) else {}
    return Start(entrypoint=_words(said.get("Entrypoint")), args=_words(said.get("Cmd")))


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
