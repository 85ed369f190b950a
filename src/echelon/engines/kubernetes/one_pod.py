"""One small pod of ours beside the runs: a Job of one pod that is made, waited for, explained and removed.

Copies to volumes, notebook servers and the pods of the check-up are made here, and state what differs: the
container, how long it may take to start, and when it is ready."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.diagnose import Trouble, gives_up
from echelon.engines.kubernetes.diagnose.trouble import Kind
from echelon.engines.kubernetes.follow.troubles import find_troubles
from echelon.engines.kubernetes.ownership.belonging import is_made_by
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.prerequisites.pod_security import forbids_root, level_of
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.pod import RESTRICTED, security_context
from echelon.engines.kubernetes.state import workers
from echelon.errors import EchelonError, Refused, Unavailable
from echelon.model.pods.pod import PodOptions
from echelon.values import frozen

_LOOK, _WHY = 0.2, 2.0  # seconds between two looks at it, and between two questions why it does not start
_GONE = 120.0  # seconds that Kubernetes may take to remove what was deleted


class ForbidsRoot(Refused):
    """The namespace takes only pods that do not run as root, and this one does not say that."""


@frozen
class Patience:
    """For how many seconds a pod that does not start is waited for: in all, with a trouble of `kinds`, and
    with one that cannot heal (None: as long as such a trouble may keep a run waiting).
    """

    whole: float = math.inf
    stuck: float = math.inf
    kinds: tuple[Kind, ...] = ()  # what hardly passes once a command has waited for `stuck` seconds
    hopeless: float | None = None
    ends: str = "it"  # what ends then, for people: "the copy"


def metadata(name: str, component: str, owner: str, options: PodOptions | None = None) -> Object:
    """The metadata of the Job, and of what belongs to it."""
    options = options or PodOptions()
    return {
        "name": name,
        "labels": {
            **options.labels,
            "app.kubernetes.io/name": "echelon",
            "app.kubernetes.io/instance": name,
            names.COMPONENT: component,
            names.MANAGED_BY: "echelon",
            names.OWNER: names.owner_slug(owner),
        },
        "annotations": {**options.annotations, names.OWNER: owner},
    }


def job_object(
    about: Object,
    container: Mapping[str, Any],
    *,
    level: str,
    pod: Mapping[str, Any] | None = None,
    job: Mapping[str, Any] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Object:
    """The Job, for a namespace of a level of Pod Security. `pod` and `job` are further fields of their specs,
    `notes` further annotations of the pod.
    """
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    made = {
        "name": names.CONTAINER,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **container,
        "securityContext": {**security, **container.get("securityContext", {})},
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security_context(level),
        "containers": [made],
        **(pod or {}),
    }
    alone = {names.NO_SIDECAR: "false"}
    template = {
        "metadata": {
            "labels": {**about["labels"], **alone},
            "annotations": {**about["annotations"], **alone, **(notes or {})},
        },
        "spec": spec,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {"backoffLimit": 0, **(job or {}), "template": template},
    }


class OnePod:
    """The Job in a namespace. `who` is its pod in sentences; `tell` gets what is waited for."""

    def __init__(
        self,
        api: Api,
        who: str,
        patience: Patience,
        tell: Callable[[str], object] = lambda _: None,
        *,
        job: Object | None = None,
    ) -> None:
        self._api = api
        self._who = who
        self._patience = patience
        self._tell = tell
        self._job = job

    @property
    def job(self) -> Object:
        """The Job, which must have been made."""
        assert self._job is not None
        return self._job

    def make(
        self,
        render: Callable[[str], Object],
        ready: Callable[[Pod], bool],
        fill: Callable[[Object], object] = lambda _: None,
    ) -> Pod:
        """Make the Job that `render` returns for a level of Pod Security, and by `fill` what belongs to it;
        wait until its pod is ready. Once more where the namespace turns out to refuse root.
        """
        level = level_of(self._api) or ""
        while True:
            self._job = self._api.create(render(level))
            try:
                fill(self._job)
                return self.wait(ready)
            except ForbidsRoot:
                # Where the user may not read the namespace's labels, its refusal shows the level.
                self.remove(wait=True)
                level = RESTRICTED

    def wait(self, ready: Callable[[Pod], bool]) -> Pod:
        """The newest pod, once it is `ready`; raises what makes waiting pointless."""
        begun = asked = time.monotonic()
        kind, since, told_last = "", begun, ""
        while True:
            asks = time.monotonic() - asked >= _WHY
            job = self._api.get("Job", self.job["metadata"]["name"]) if asks else self.job
            pods = self.pods()  # after the Job: whose end they explain
            if pods and ready(pods[-1]):
                return pods[-1]
            if asks:
                asked = now = time.monotonic()
                if dialects.end_of([job]) is not None:
                    raise self._ended(pods)
                troubles = find_troubles(self._api, [job], pods, alone=self._who)
                security = job["spec"]["template"]["spec"].get("securityContext") or {}
                if "runAsNonRoot" not in security and forbids_root(troubles):
                    raise ForbidsRoot("the namespace takes no pod that runs as root")
                first = troubles[0] if troubles else None
                if kind != (first.kind if first else ""):
                    kind, since = (first.kind if first else ""), now
                if end := verdict(self._patience, troubles, waited=now - begun, lasted=now - since):
                    raise end
                if first is None and now - begun >= self._patience.whole:
                    text = f"{self._who} did not start within {self._patience.whole:g} s"
                    raise Unavailable(text, hint="`kubectl get pods` shows it")
                if first is not None and first.sentence != told_last:
                    told_last = first.sentence
                    self._tell(told(self._patience, first))
            time.sleep(_LOOK)

    def pods(self) -> list[Pod]:
        """The pods that the Job controller made of the Job, the oldest first. Anybody may give a pod the
        labels of these.
        """
        about = self.job["metadata"]
        listed = self._api.list_shapes("Pod", Pod, selector=f"{names.JOB_NAME}={about['name']}")
        return workers.leader_pods(pod for pod in listed if is_made_by(pod.metadata, {about["uid"]}))

    def explain(self) -> str:
        """Why no pod runs; "" where nothing shows it."""
        troubles = find_troubles(self._api, [self.job], self.pods(), alone=self._who)
        return troubles[0].sentence if troubles else ""

    def remove(self, *, wait: bool = False) -> None:
        """Delete the Job, if it was made, and with it what belongs to it; `wait` until its name is free and
        its pods are gone.
        """
        if self._job is None:
            return
        name, deadline = self.job["metadata"]["name"], time.monotonic() + _GONE
        self._api.delete("Job", name, uid=self.job["metadata"]["uid"])
        while wait and self._is_there():
            if time.monotonic() > deadline:
                raise Refused(f"{name} is still being removed", hint="the same command goes on with it")
            time.sleep(_LOOK)
        self._job = None

    def _is_there(self) -> bool:
        about = self.job["metadata"]
        found = self._api.find("Job", about["name"])
        return (found is not None and found["metadata"]["uid"] == about["uid"]) or bool(self.pods())

    def _ended(self, pods: Sequence[Pod]) -> EchelonError:
        loss = workers.last_loss(pods)
        why = f": {loss.how}" if loss is not None else ""
        hint = f"`kubectl describe job {self.job['metadata']['name']}` has more"
        return Unavailable(f"{self._who} has ended{why}", hint=hint)


def verdict(
    patience: Patience, troubles: Sequence[Trouble], *, waited: float, lasted: float
) -> EchelonError | None:
    """What ends the wait after `waited` seconds; the first trouble has lasted for `lasted` of them."""
    if not troubles:
        return None
    first, final = troubles[0], gives_up(troubles, time.time())
    if patience.hopeless is not None and not first.healable:
        final = first if lasted >= patience.hopeless else None
    if final is not None:
        return Refused(final.sentence, hint=final.hint)
    if waited >= patience.whole or (first.kind in patience.kinds and lasted >= patience.stuck):
        return Unavailable(first.sentence, hint=first.hint)
    return None


def told(patience: Patience, trouble: Trouble) -> str:
    """A trouble as people read it: what it is, what to do, and how long it may last."""
    limit = f"{patience.ends} ends if it lasts {patience.stuck:g} s" if trouble.kind in patience.kinds else ""
    more = "; ".join(filter(None, (trouble.hint, limit)))
    return f"{trouble.sentence} ({more})" if more else trouble.sentence
