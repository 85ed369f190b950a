"""When a notebook server answers, and what keeps it from that. It only reads, and connects to the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.diagnose import Trouble, gives_up
from echelon.engines.kubernetes.follow.troubles import find_troubles
from echelon.engines.kubernetes.notebook.objects import NO_JUPYTER
from echelon.engines.kubernetes.ownership.belonging import is_made_by
from echelon.engines.kubernetes.prerequisites.pod_security import forbids_root
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import workers
from echelon.errors import EchelonError, Refused, Unavailable

_LOOK, _WHY = 0.3, 2.0  # seconds between two looks at it, and between two questions why it does not start
_ANSWER = 5.0  # seconds for an answer
_STARTS = 15.0  # seconds after which it is worth saying that Jupyter is starting
_WHO = "the notebook server"
_REQUEST = b"GET /api HTTP/1.0\r\nHost: localhost\r\n\r\n"  # Jupyter's version: it needs no token


class ForbidsRoot(Exception):
    """The namespace takes only pods that do not run as root."""


def pods_of(api: Api, job: Object) -> list[Object]:
    """The pods of a server's Job, the oldest first."""
    listed = api.list("Pod", selector=f"{names.JOB_NAME}={job['metadata']['name']}").items
    mine = [pod for pod in listed if is_made_by(pod, {job["metadata"]["uid"]})]
    return workers.pods_by_worker(mine).get(0, [])


def running_pod(api: Api, job: Object) -> str:
    """The name of the pod that runs; Unavailable, with the reason, if none does."""
    pods = pods_of(api, job)
    if pods and workers.is_running(pods[-1]):
        return str(pods[-1]["metadata"]["name"])
    if dialects.end_of([job]) is not None:
        raise has_ended(job)
    troubles = find_troubles(api, [job], pods, alone=_WHO)
    why = troubles[0].sentence if troubles else f"{_WHO} does not run yet"
    raise Unavailable(why, hint="`echelon jupyter up` waits for it")


def has_ended(job: Object) -> Unavailable:
    """The error for a server that was shut down, or failed too often."""
    hint = "`echelon jupyter up --image IMAGE` starts it again; its files are there"
    return Unavailable(f"{job['metadata']['name']} has ended", hint=hint)


def answers(api: Api, pod: str) -> bool:
    """Whether Jupyter answers in the pod."""
    deadline = time.monotonic() + _ANSWER
    answer = b""
    try:
        with api.port(pod, names.NOTEBOOK_PORT) as connection:
            connection.write(_REQUEST)
            while b"\r\n" not in answer and time.monotonic() < deadline:
                found = connection.read(_ANSWER)
                if found is None:
                    break
                answer += found[1]
    except (
        EchelonError,
        OSError,
        TimeoutError,
    ):  # nothing listens yet; a pod that ended is noticed by itself
        return False
    return answer.split(b" ")[1:2] == [b"200"]


def wait_for_answer(api: Api, job: Object, tell: Callable[[str], object], *, first: bool) -> None:
    """Wait until the server answers; `tell` gets what it waits for, and what cannot heal is raised. With
    `first`, a pod that has ended is the end: a server that ran before is started again by its Job.
    """
    begun = asked = time.monotonic()
    told = ""
    while True:
        pods = pods_of(api, job)
        now = time.monotonic()
        newest = pods[-1] if pods else None
        if newest is not None and workers.is_running(newest):
            if answers(api, newest["metadata"]["name"]):
                return
            troubles, text = [], "Jupyter is starting" if now - begun > _STARTS else told
        elif newest is not None and first and workers.has_ended(newest):
            raise _ended(newest)
        elif now - asked < _WHY:
            time.sleep(_LOOK)
            continue
        else:
            asked = now
            job = api.get("Job", job["metadata"]["name"])
            if dialects.end_of([job]) is not None:
                raise has_ended(job)
            troubles = find_troubles(api, [job], pods, alone=_WHO)
            _check(troubles, job)
            text = f"{troubles[0].sentence} ({troubles[0].hint})" if troubles else told
        if text != told:
            told = text
            tell(text)
        time.sleep(_LOOK)


def _check(troubles: Sequence[Trouble], job: Object) -> None:
    restricted = "runAsNonRoot" in job["spec"]["template"]["spec"]["securityContext"]
    if not restricted and forbids_root(troubles):
        raise ForbidsRoot
    final = gives_up(troubles, time.time())
    if final is not None:
        raise Refused(final.sentence, hint=final.hint)


def _ended(pod: Object) -> EchelonError:
    """Why a server ended at its start."""
    end = workers.container_end(pod)
    if end is not None and end.exit_code == NO_JUPYTER:
        image = workers.worker_container(pod["spec"])["image"]
        return Unavailable(f"the image {image} has no Jupyter", hint="choose one with jupyterlab in it")
    loss = workers.loss_of(pod)
    lines = [line for line in (end.message if end is not None else "").splitlines() if line.strip()]
    how = loss.how if loss is not None else "Jupyter has ended"
    said = f": {lines[-1].strip()}" if lines else ""
    return Unavailable(f"{_WHO} did not start: {how}{said}", hint="does the image's Jupyter work?")
