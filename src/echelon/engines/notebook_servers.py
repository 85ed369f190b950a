"""Jupyter servers that users have in a cluster for themselves: what is asked for, what there is, and what an
engine that has them can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from echelon.model.pods.pod import Output, PodOptions
from echelon.model.resources import Resources
from echelon.values import frozen


@frozen
class ServerSettings:
    """What a user asks for. Without `files`, the server's folder goes with it."""

    pod: PodOptions
    resources: Resources
    files: Output | None
    env: Mapping[str, str] = field(default_factory=dict)


@frozen
class ServerFound:
    """A server that is there and answers."""

    name: str
    image: str
    created: bool  # by the call that returns it


@frozen
class ServerRemoved:
    """What `down` has removed, and the volume that it has kept; `left` is one of the server's name of which
    nothing shows that it was made for it.
    """

    was_there: bool
    kept: str | None = None
    removed: str | None = None
    left: str | None = None


class NotebookServers(Protocol):
    """Jupyter servers, by their names."""

    def manifests(self, name: str, asked: ServerSettings) -> Sequence[Mapping[str, object]]:
        """The objects that `up` would make, without the token."""
        ...

    def up(self, name: str, asked: ServerSettings | None, tell: Callable[[str], object]) -> ServerFound:
        """Make the server if it is not there, and wait until it answers; without `asked`, only wait. `tell`
        gets what it waits for. It may be repeated.
        """
        ...

    def open(
        self,
        name: str,
        port: int | None,
        show: Callable[[str], object],
        tell: Callable[[str], object],
    ) -> None:
        """Make the server reachable on a local port until it ends; `show` gets the address, with the token.
        Without `port`, it is Jupyter's own where that is free.
        """
        ...

    def down(self, name: str, *, volumes: bool) -> ServerRemoved:
        """Remove the server and its token; with `volumes`, the volume that was made for it too."""
        ...
