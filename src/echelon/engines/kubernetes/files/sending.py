"""What a client sends to a run when its leader has started: code that is too large for ConfigMaps, and the
checkpoints that a run goes on from which was resumed (`sent_checkpoints.py`). The leader gets the code, and
the other workers copy it from there (`echelon.agent.setup.sent_code`).

The client that submitted or resumed the run sends it, for as long as it follows the run. An interrupted
transfer goes on where it was; one that cannot go on ends the run. If the client is gone, the leader does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from echelon.engines.kubernetes import control, names
from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.files.archive_file import archive_file
from echelon.engines.kubernetes.files.sent_checkpoints import Shipment, awaits_checkpoints, send_checkpoints
from echelon.engines.kubernetes.files.transfer import pod_opener, send_tree
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state import workers
from echelon.engines.machine import Submissions
from echelon.errors import EchelonError, StateTrouble
from echelon.model.resources import format_memory
from echelon.model.run import RunRef

if TYPE_CHECKING:
    from echelon.engines.abilities import CopyWatch

_PATIENCE = 150.0  # seconds without a byte; the leader waits for a little longer (`agent/setup/sent_code.py`)


class Sending:
    """Sends what runs wait for."""

    def __init__(self, connect: Callable[[], Api], submissions: Submissions) -> None:
        self._connect = connect
        self._submissions = submissions

    def is_due(self, ref: RunRef) -> bool:
        """Whether anything is sent to the run."""
        stored = views.read_alone(self._connect(), ref)
        return stored.shipped.sent > 0 or awaits_checkpoints(stored)

    def has_code(self, ref: RunRef) -> bool:
        """Whether the run has code that is sent."""
        return views.read_alone(self._connect(), ref).shipped.sent > 0

    def deliver(self, ref: RunRef, watch: CopyWatch) -> None:
        """Send it, when the leader has started. Sending it again sends nothing."""
        api = self._connect()
        stored = views.read_alone(api, ref)
        if stored.shipped.sent > 0:
            self._deliver_code(api, ref, watch)
        if awaits_checkpoints(stored):
            self._deliver_checkpoints(api, ref, stored, watch)

    def _deliver_checkpoints(self, api: Api, ref: RunRef, stored: Stored, watch: CopyWatch) -> None:
        def is_over() -> bool:
            now = views.look(api, ref)
            leads = any(not workers.has_ended(pod) for pod in workers.leader_pods(now.pods))
            return not leads or now.stored.stop is not None or now.stored.end is not None

        try:
            shipment = Shipment(stored.run.job.pod, self._submissions.safe_of(stored.uid))
            send_checkpoints(api, stored, shipment, watch.update, watch.notice, is_over)
        except EchelonError as error:
            _give_up(api, ref, f"its checkpoints cannot be sent: {error.message}")

    def _deliver_code(self, api: Api, ref: RunRef, watch: CopyWatch) -> None:
        view = views.look(api, ref)
        leaders = [pod for pod in workers.leader_pods(view.pods) if not workers.has_ended(pod)]
        if not leaders:
            return
        try:
            self._send(api, view.stored, leaders[-1], watch)
        except NotThere:
            pass  # the leader is gone: one that replaces it gets the code, too
        except EchelonError as error:
            _give_up(api, ref, f"its code cannot be sent: {error.message}")

    def _send(self, api: Api, stored: Stored, pod: Pod, watch: CopyWatch) -> None:
        code = self._submissions.code_of(stored.uid)
        if code is None:
            raise StateTrouble("this machine has not kept it", hint="submit the run again")
        watch.notice(f"sending {format_memory(len(code))} of code to worker 0")
        name, container = pod.metadata.name, workers.container_name(pod)
        opener = pod_opener(api, name, container=container, python=stored.run.job.python)
        with archive_file(code) as file:
            target = names.sent_code(stored.shipped.digest)
            send_tree(opener, file, target, progress=watch.update, patience=_PATIENCE)


def _give_up(api: Api, ref: RunRef, reason: str) -> None:
    """End the run, unless it ends already."""
    view = views.look(api, ref)
    if view.stored.stop is None and view.stored.end is None:
        control.give_up(api, view.stored, view.jobs, reason)
