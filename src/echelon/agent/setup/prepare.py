"""What a worker's ranks need before they can start: folders, the shipped code, the requested packages. Done
once per agent, however often the ranks are started.

The worker joins its gang meanwhile, and is ready when this is done. What fails here would fail again after
any restart, so it ends the run: the worker sends the cause to the leader (`unfit`), whose verdict is that the
run failed, whatever restarts are left."""

from __future__ import annotations

import os

from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.ranks.ranks import Ranks
from echelon.agent.task import Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.setup.packages import Installation

FOLDER_EXIT_CODE = 115  # of a run whose results folder cannot be used
CODE_EXIT_CODE = 116  # of a run whose code did not arrive


class Setup:
    """The preparation of one worker; ends with the callbacks of `when_done`, or with `on_failed(cause)`."""

    def __init__(
        self, loop: Loop, task: Task, place: Place, sink: Sink, ranks: Ranks, first: bool = False
    ) -> None:
        self._loop = loop
        self._task = task
        self._place = place
        self._sink = sink
        self._ranks = ranks
        self._first = first  # the run's first leader: no results of this run can exist yet
        self._done = False
        self._cancelled = False
        self._waiting: list[Callable[[], object]] = []
        self._installation: Installation | None = None
        self.on_failed: Callable[[dict[str, object]], object] = lambda _cause: None

    def begin(self) -> None:
        """Do the quick steps, and start the slow one (pip)."""
        try:
            os.makedirs(self._task.output, exist_ok=True)
        except OSError as error:
            self._fail("the output folder cannot be made", error, FOLDER_EXIT_CODE)
            return
        if self._task.fresh and self._first and (there := _results_in(self._task.output)):
            message = "it has %s (say --resume to go on in it, or another --output)" % there
            self._fail("the results folder is not empty", FileExistsError(message), FOLDER_EXIT_CODE)
            return
        if not os.access(self._task.output, os.W_OK):
            reason = "user id %d may not write to the output folder %s" % (os.getuid(), self._task.output)
            self._sink.event("note", worker=self._place.worker, reason=reason)
        if self._task.bundle is not None:
            from echelon.agent.setup.packages import join_parts
            from echelon.agent.setup.unpack import BadBundle, unpack

            bundle = self._task.bundle
            try:
                data = join_parts(bundle.get("parts") or [bundle["path"]])
                unpack(data, bundle["digest"], bundle["target"])
            except (BadBundle, OSError) as error:
                self._fail("the code cannot be unpacked", error, CODE_EXIT_CODE)
                return
        if self._task.pip is not None:
            from echelon.agent.setup.packages import Installation

            self._installation = Installation(
                self._loop,
                self._ranks.children,
                self._task,
                self._place,
                self._sink,
                self._on_installed,
                self._give_up,
            )
            self._installation.begin()
        else:
            self._finish()

    def when_done(self, then: Callable[[], object]) -> None:
        """Call `then()` when everything is ready."""
        if self._done:
            then()
        else:
            self._waiting.append(then)

    def cancel(self) -> None:
        """Stop, since the run is over."""
        self._cancelled = True
        self._waiting.clear()
        if self._installation is not None:
            self._installation.cancel()

    def _on_installed(self, ahead: dict[str, str]) -> None:
        self._ranks.ahead = ahead
        self._finish()

    def _finish(self) -> None:
        self._done = True
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _fail(self, what: str, error: Exception, exit_code: int) -> None:
        message = str(error)
        if isinstance(error, OSError) and error.strerror:
            message = "%s: %s" % (error.filename, error.strerror) if error.filename else error.strerror
        self._give_up(
            {
                "summary": "worker %d: %s: %s" % (self._place.worker, what, message),
                "worker": self._place.worker,
                "exit_code": exit_code,
                "error": message,
            }
        )

    def _give_up(self, cause: dict[str, object]) -> None:
        if not self._cancelled:
            self._sink.event("note", worker=self._place.worker, reason=cause["summary"])
            self.on_failed(cause)


def _results_in(folder: str) -> str | None:
    """An entry of the folder, except those that other workers or file systems create."""
    return next((name for name in sorted(os.listdir(folder)) if name not in ("logs", "lost+found")), None)
