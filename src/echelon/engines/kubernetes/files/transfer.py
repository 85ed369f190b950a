"""Files in and out of pods: a tree is copied over `exec`, gone on with when the connection breaks.

`kubectl cp` pipes tar through the same kind of connection, and what breaks is lost. Here both ends are ours:
the agent in the pod is one, this process the other (`echelon.agent.files`, the same code on both sides). A
connection that breaks, as when the API server restarts, is made again for minutes, and every try goes on
where the last one stopped; each file is checked by its sha256 and appears in one step.

The opener of connections is a parameter, so that tests reach an agent without a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.agent.files.receiver import Missing, Receiver
from echelon.agent.files.sender import Sender
from echelon.agent.files.tree import BadTree
from echelon.agent.files.wire import Garbled, Trouble, Wire
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.files.reconnect import PATIENCE, Channel, Opener, persist
from echelon.errors import InvalidJob, Refused, StateTrouble, from_os_error
from echelon.model.copy import Copied, LeftOut, Manifest, Progress

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

__all__ = ["Copied", "LeftOut", "Opener", "Progress", "fetch_tree", "pod_opener", "send_tree"]


def pod_opener(
    api: Api,
    pod: str,
    *,
    container: str = names.CONTAINER,
    python: str | None = None,
) -> Opener:
    """Reach the agent in a pod. A connection that broke is not made again once the pod has ended, and one
    that is refused since it has says so at once: a worker of a run with a keeper leaves at any moment.
    """
    tried = False

    def opener(arguments: Sequence[str]) -> AbstractContextManager[Channel]:
        nonlocal tried
        if tried:
            _check_runs(api, pod)
        tried = True
        command = names.agent_command(python, "files", *arguments)
        try:
            return api.exec(pod, command, container=container, stdin=True)
        except Refused as error:
            if type(error) is Refused:
                _check_runs(api, pod)
            raise

    return opener


def _check_runs(api: Api, pod: str) -> None:
    from echelon.engines.kubernetes.client.api import NotThere
    from echelon.engines.kubernetes.pods import Pod
    from echelon.engines.kubernetes.state.workers import has_ended

    found = api.find_shape("Pod", Pod, pod)
    if found is None or has_ended(found):
        raise NotThere(
            f"pod {pod!r} has ended, and what it held is gone", hint="keep it on a volume: --output"
        )


def fetch_tree(
    opener: Opener,
    root: str,
    to: Path | str,
    *,
    path: str = ".",
    into: bool = False,
    move: Callable[[str], str] = lambda path: path,
    progress: Callable[[Progress], object] = lambda _: None,
    outstanding: Callable[[Mapping[str, int]], object] = lambda _: None,
    patience: float = PATIENCE,
) -> Copied:
    """Copy what is at `path` below the folder `root` in the pod: a folder's content into the folder `to`, a
    file to the file `to`; or, with `into`, as `cp -r` does: below the folder `to` if there is one.

    `move` maps a path of the tree to its path below `to`. `outstanding` gets, for each connection, the files
    that are not here yet with their sizes: a mapping that shrinks as they come. Raises InvalidJob if
    there is nothing at `path`.
    """

    def converse(wire: Wire) -> dict[str, Any]:
        receiver = Receiver(wire, str(to), into, move, _reporter(progress))
        outstanding(receiver.outstanding)
        return receiver.run()

    try:
        with _translated(to):
            return _copied(persist(opener, ("send", root, path), converse, _trouble_to(progress), patience))
    except Missing:
        raise InvalidJob("path", path, "is not there", hint="check its spelling") from None


def send_tree(
    opener: Opener,
    source: Path,
    root: str,
    *,
    into: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
    patience: float = PATIENCE,
) -> Copied:
    """Copy a file or a folder's content of this machine to `root` in the pod; see `fetch_tree`."""
    missing = InvalidJob("source", str(source), "is not there", hint="check its spelling")
    if not source.exists():
        raise missing

    def converse(wire: Wire) -> dict[str, Any]:
        return Sender(wire, str(source), on_progress=_reporter(progress)).run()

    arguments = ("receive", root, *(("--into",) if into else ()))
    with _translated(source):
        outcome = persist(opener, arguments, converse, _trouble_to(progress), patience)
    if "missing" in outcome:  # since a moment ago
        raise missing
    return _copied(outcome)


@contextlib.contextmanager
def _translated(where: object) -> Iterator[None]:
    """What either end cannot do, as an error of ours."""
    try:
        yield
    except (BadTree, Garbled) as error:
        raise StateTrouble(
            f"the copy was refused: {error}", hint="nothing was written outside the target"
        ) from error
    except Trouble as error:
        raise _their_trouble(error) from error
    except OSError as error:
        raise from_os_error(error, where) from error


def _their_trouble(error: Trouble) -> StateTrouble:
    if error.code in ("ENOSPC", "EDQUOT"):
        return StateTrouble(
            f"the volume is full: {error.path} does not fit in the pod",
            hint="free some space or take a larger volume; the same command then goes on",
        )
    if error.code in ("BadTree", "Garbled"):
        return StateTrouble(f"the pod refused the copy: {error}", hint="look at what is there already")
    if error.code in ("EACCES", "EPERM", "EROFS"):
        return StateTrouble(
            f"cannot use {error.path} in the pod: {error}",
            hint="the volume belongs to another user, or may only be read",
        )
    return StateTrouble(f"{error.path} in the pod: {error}", hint="try again")


def _reporter(progress: Callable[[Progress], object]) -> Callable[[int, int, int, int], object]:
    return lambda done, total, files_done, files: progress(
        Progress(done=done, total=total, files_done=files_done, files=files)
    )


def _trouble_to(progress: Callable[[Progress], object]) -> Callable[[str], object]:
    return lambda trouble: progress(Progress(trouble=trouble))


def _copied(outcome: dict[str, Any]) -> Copied:
    manifest = outcome.get("manifest")  # of a copy from a pod: made here, not by the other end
    return Copied(
        target=str(outcome["target"]),
        files=int(outcome["files"]),
        size=int(outcome["bytes"]),
        there=int(outcome["there"]),
        left_out=tuple(LeftOut(path=str(path), why=str(why)) for path, why in outcome["left_out"]),
        changed=tuple(map(str, outcome["changed"])),
        failed=tuple(LeftOut(path=str(path), why=str(why)) for path, why in outcome.get("failed", ())),
        manifest=Manifest(**manifest) if manifest is not None else None,
    )
