"""Results from a run's workers to one folder, each worker's part checked against what the worker stated.

What goes wrong with one worker does not keep the others' files away; all of it is returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import NotThere
from echelon.engines.kubernetes.files.reconnect import Opener
from echelon.engines.kubernetes.files.results.shards import Missing, Shard, check_copy, left_out_of, whole
from echelon.engines.kubernetes.files.transfer import fetch_tree
from echelon.errors import EchelonError, InvalidJob, Unreachable
from echelon.model.copy import Copied, LeftOut, Manifest, Progress
from echelon.values import frozen

Progressed = Callable[[int, int], object]  # the bytes that have come, and how many there are
_LOGS = "logs/"


@frozen
class Gathered:
    """What came, and what did not. `left_out` cannot be copied at all (devices, links to outside)."""

    missing: tuple[Missing, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    size: int = 0
    brought: bool = False  # something came, or was here already


def gather(
    shards: Sequence[Shard],
    folders: Sequence[str],
    folder: Path,
    reach: Callable[[str], Opener],
    *,
    progress: Progressed | None = None,
) -> Gathered:
    """Fetch every shard's `folders` into `folder`. `reach` gives the way to a pod."""
    missing: list[Missing] = []
    left_out: list[LeftOut] = []
    size, brought, away = 0, False, ""
    for shard in shards:
        if shard.pod is None or away:
            all_of_it = whole(shard, shard.why or away, lost=shard.lost)
            missing += [] if all_of_it.files == 0 else [all_of_it]
            continue
        if shard.only_checkpoints:
            rest = Missing(worker=shard.worker, why=shard.why, lost=shard.lost, but_checkpoints=True)
            missing.append(rest)
        opener = reach(shard.pod)
        left_out += [LeftOut(path=place_of(shard.worker, each.path), why=each.why) for each in shard.left_out]
        for number, root in enumerate(folders):
            place = root_of(shard, root, number)
            fetch = _Fetch(shard, root, place, folder, size, progress)
            found = fetch.run(opener)
            left_out += found.left_out
            size += found.size
            brought = brought or found.brought
            missing += found.missing
            away = away or fetch.unreachable  # the other workers are not tried for minutes each
    return Gathered(
        missing=tuple(missing),
        left_out=tuple(left_out),
        size=size,
        brought=brought,
    )


def place_of(worker: int, path: str) -> str:
    """Where a worker's file belongs: logs are numbered by rank, so that those of all go together."""
    return path if worker == 0 or path.startswith(_LOGS) or path == "logs" else f"worker-{worker}/{path}"


def root_of(shard: Shard, root: str, number: int = 0) -> str:
    """Where a worker's folder is in the pod that has it; the keeper has those of each worker by number."""
    return names.kept_folder(shard.worker, number) if shard.kept else root


class _Fetch:
    """One folder of one worker; what is known of it while it comes."""

    def __init__(
        self,
        shard: Shard,
        root: str,
        place: str,
        folder: Path,
        before: int,
        progress: Progressed | None,
    ) -> None:
        self._shard = shard
        self._root = root  # in the worker
        self._place = place  # in the pod that has it
        self._folder = folder
        self._before = before
        self._progress = progress
        self._current: Mapping[str, int] = {}  # of the connection that is tried
        self._outstanding: Mapping[str, int] = {}  # of the last one over which a listing came
        self._listed = False
        self.unreachable = ""

    def run(self, opener: Opener) -> Gathered:
        stated = self._stated()
        if stated is not None and not stated.digest:
            return Gathered()  # it was not there when the worker's part was over
        try:
            copied = self._copy(opener)
        except InvalidJob:  # nothing is there
            if stated is None:
                return Gathered()
            return Gathered(missing=(self._all(f"{self._root} is not in its pod any more", lost=True),))
        except NotThere:
            return Gathered(missing=(self._all("its pod is gone", lost=True),), brought=self._listed)
        except EchelonError as error:
            if isinstance(error, Unreachable):
                self.unreachable = error.message
            return Gathered(missing=(self._all(error.message),), brought=self._listed)
        lacks = check_copy(self._shard.worker, stated, copied)
        return Gathered(
            missing=(lacks,) if lacks is not None else (),
            left_out=tuple(
                LeftOut(path=place_of(self._shard.worker, each.path), why=each.why)
                for each in left_out_of(copied)
            ),
            size=copied.size,
            brought=True,
        )

    def _stated(self) -> Manifest | None:
        return None if self._shard.stated is None else self._shard.stated.get(self._root)

    def _copy(self, opener: Opener) -> Copied:
        target: Path = self._folder
        move: Callable[[str], str] = partial(place_of, self._shard.worker)
        if self._root != names.OUTPUT:
            target, move = target / move(Path(self._root).name), str
        return fetch_tree(
            opener, self._place, target, move=move, progress=self._report, outstanding=self._note
        )

    def _note(self, outstanding: Mapping[str, int]) -> None:
        self._current = outstanding

    def _report(self, now: Progress) -> None:
        if now.trouble:
            return
        self._listed, self._outstanding = True, self._current
        if self._progress is not None:
            self._progress(self._before + now.done, self._before + now.total)

    def _all(self, why: str, *, lost: bool = False) -> Missing:
        """What has not come: by the listing, if one came, else by what the worker stated."""
        if self._listed:
            left = dict(self._outstanding)
            return Missing(
                worker=self._shard.worker,
                why=why,
                files=len(left),
                size=sum(left.values()),
                names=tuple(left),
                lost=lost,
            )
        stated = self._stated()
        return Missing(
            worker=self._shard.worker,
            why=why,
            files=stated.files if stated else None,
            size=stated.size if stated else None,
            lost=lost,
        )
