"""What a worker's ranks need before they can start: folders, the shipped code, the requested packages. Done
once per agent, however often the ranks are started.

The worker joins its gang meanwhile, and is ready when this is done. What fails here would fail again after
any restart, so it ends the run: the worker sends the cause to the leader (`unfit`), whose verdict is that the
run failed, whatever restarts are left."""

from __future__ import annotations

import json
import os
import sys

from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.ranks.ranks import Ranks
from echelon.agent.task import Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

    from echelon.agent.ranks.child import Child
    from echelon.agent.setup.packages import Installation
    from echelon.agent.setup.sent_code import LeadersCode, PeersCode

FOLDER_EXIT_CODE = 115  # of a run whose results folder cannot be used
CODE_EXIT_CODE = 116  # of a run whose code did not arrive
MOST_COMPLAINT = 4000  # bytes of what a process says that failed


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
        self._from_client: LeadersCode | None = None
        self._from_leader: PeersCode | None = None
        self._unpacking: Child | None = None
        self._complaint = b""
        self.on_failed: Callable[[dict[str, object]], object] = lambda _cause: None
        # Take a message to the leader, and, on the leader, to another worker.
        self.send: Callable[[dict[str, object]], object] = lambda _message: None
        self.send_to: Callable[[int, dict[str, object]], object] = lambda _worker, _message: None

    def begin(self) -> None:
        """Do the quick steps, and start the slow ones: code that has yet to come, pip."""
        try:
            os.makedirs(self._task.output, exist_ok=True)
        except OSError as error:
            self._fail("the output folder cannot be made", error, FOLDER_EXIT_CODE)
            return
        if self._task.fresh and self._first and not self._is_own_folder():
            if there := _results_in(self._task.output):
                message = "it has %s (say --reuse-results to go on in it, or another --output)" % there
                self._fail("the results folder is not empty", FileExistsError(message), FOLDER_EXIT_CODE)
                return
            self._mark_folder()
        if not os.access(self._task.output, os.W_OK):
            reason = "user id %d may not write to the output folder %s" % (os.getuid(), self._task.output)
            self._sink.event("note", worker=self._place.worker, reason=reason)
        if self._task.bundle is None:
            self._install()
        elif "sent" in self._task.bundle:
            self._await_code(self._task.bundle)
        else:
            self._unpack(self._task.bundle)

    # The folder for results. Who suspends a run's Job, and lets it go on, gets pods that look like its first.

    def _is_own_folder(self) -> bool:
        """Whether this run has begun to write to the folder before."""
        try:
            with open(_marker(self._task.output), "rb") as file:
                return file.read(len(self._mark()) + 1) == self._mark()
        except OSError:
            return False

    def _mark_folder(self) -> None:
        """Best effort: the folder may be one that this user may not write to."""
        try:
            with open(_marker(self._task.output), "wb") as file:
                file.write(self._mark())
        except OSError:
            pass

    def _mark(self) -> bytes:
        """What no other run can know, not even a later one of the same name; the secret does not follow."""
        from hashlib import sha256

        digest = sha256(b"results of " + self._task.secret()).hexdigest()
        return json.dumps({"run": self._task.run, "mark": digest}).encode() + b"\n"

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
        for step in (self._from_client, self._from_leader, self._unpacking, self._installation):
            if step is not None:
                step.cancel()

    # Code

    def _unpack(self, bundle: dict[str, Any]) -> None:
        from echelon.agent.setup.unpack import BadBundle, join_parts, unpack

        try:
            unpack(join_parts(bundle.get("parts") or [bundle["path"]]), bundle["digest"], bundle["target"])
        except (BadBundle, OSError) as error:
            self._fail("the code cannot be unpacked", error, CODE_EXIT_CODE)
        else:
            self._install()

    def _await_code(self, bundle: dict[str, Any]) -> None:
        from echelon.agent.setup.sent_code import LeadersCode, PeersCode

        def absent(reason: str) -> None:
            self._fail("the code did not arrive", TimeoutError(reason), CODE_EXIT_CODE)

        def failed(error: OSError) -> None:
            self._fail("the code cannot be copied from worker 0", error, CODE_EXIT_CODE)

        if self._place.worker == 0:
            self._from_client = LeadersCode(self._loop, bundle, self.send_to, self._unpack_beside, absent)
            self._from_client.begin()
        else:
            self._from_leader = PeersCode(bundle, self.send, self._unpack_beside, failed)
            self._from_leader.begin()

    def meet_leader(self) -> None:
        """There is a leader, perhaps another one: request of it what is missing."""
        if self._from_leader is not None:
            self._from_leader.begin()

    def take_code(self, message: dict[str, object]) -> None:
        """A piece of the code, from the leader."""
        if self._from_leader is not None:
            self._from_leader.take(message)

    def hand_on_code(self, worker: int, offset: object) -> None:
        """Another worker requests a piece of the code."""
        if self._from_client is not None:
            self._from_client.request(worker, offset)

    def _unpack_beside(self) -> None:
        """Unpack in a process of its own: it takes seconds, and the gang waits for heartbeats by now."""
        from echelon.agent.ranks.child import Child

        bundle = self._task.bundle
        assert bundle is not None
        argv = [sys.executable, sys.argv[0], "unpack", bundle["sent"], bundle["digest"], bundle["target"]]
        env, children = dict(os.environ), self._ranks.children
        try:
            self._unpacking = Child(self._loop, children, argv, env, self._note_complaint, self._on_unpacked)
        except OSError as error:
            self._fail("the code cannot be unpacked", error, CODE_EXIT_CODE)

    def _note_complaint(self, _stream: int, data: bytes) -> None:
        self._complaint = (self._complaint + data)[-MOST_COMPLAINT:]

    def _on_unpacked(self, code: int) -> None:
        self._unpacking = None
        if code == 0:
            if self._from_leader is not None:
                self._from_leader.drop()
            self._install()
        else:
            said = self._complaint.decode("utf-8", "replace").strip() or "it ended with code %d" % code
            self._fail("the code cannot be unpacked", ValueError(said), CODE_EXIT_CODE)

    # Packages

    def _install(self) -> None:
        if self._task.pip is None:
            self._finish()
            return
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

    def _on_installed(self, ahead: dict[str, str]) -> None:
        self._ranks.ahead = ahead
        self._finish()

    def _finish(self) -> None:
        self._done = True
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _fail(self, what: str, error: Exception, exit_code: int) -> None:
        from echelon.agent.setup.unpack import describe_error

        message = describe_error(error)
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


def _marker(folder: str) -> str:
    from echelon.agent.files.tree import MARKER

    return os.path.join(folder, MARKER)


def _results_in(folder: str) -> str | None:
    """An entry of the folder, except those that other workers, file systems or echelon itself create."""
    from echelon.agent.files.tree import MARKER

    no_results = ("logs", "lost+found", ".gitignore", MARKER)
    return next((name for name in sorted(os.listdir(folder)) if name not in no_results), None)
