"""Makes a user's notebook server, reaches it and removes it; making and removing may be repeated."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from echelon.engines.abilities import PortPair
from echelon.engines.base import current_user
from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.abilities.ports import pass_on
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Object
from echelon.engines.kubernetes.fields import annotation
from echelon.engines.kubernetes.files.volumes import create_volume
from echelon.engines.kubernetes.nodes.gpus import gpu_resource
from echelon.engines.kubernetes.notebook import objects
from echelon.engines.kubernetes.notebook.objects import NO_JUPYTER, Surrounding
from echelon.engines.kubernetes.one_pod import ForbidsRoot, OnePod, Patience
from echelon.engines.kubernetes.ownership.belonging import is_owned_by
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.prerequisites.pod_security import level_of
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import workers
from echelon.engines.machine import OwnClaims
from echelon.engines.notebook_servers import ServerFound, ServerRemoved, ServerSettings
from echelon.errors import Denied, EchelonError, InvalidJob, Refused, Unavailable
from echelon.values import frozen

_GONE = 120.0  # seconds that Kubernetes may take to remove what was deleted
_LOOK = 0.2
_ANSWER = 5.0  # seconds for an answer
_STARTS = 15.0  # seconds after which it is worth saying that Jupyter is starting
_WHO = "the notebook server"
_REQUEST = b"GET /api HTTP/1.0\r\nHost: localhost\r\n\r\n"  # Jupyter's version: it needs no token


class PodNotebooks:
    """The notebook servers of a namespace."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect
        self._claims = OwnClaims()

    def manifests(self, name: str, asked: ServerSettings) -> Sequence[Mapping[str, object]]:
        """The objects that `up` would make, without the token."""
        api = self._connect()
        around = replace(_around(api, asked), level=level_of(api) or "")
        return objects.previewed(name, asked, around)

    def up(self, name: str, asked: ServerSettings | None, tell: Callable[[str], object]) -> ServerFound:
        """Make what is not there, and wait until Jupyter answers."""
        api = self._connect()
        job, known = _find(api, name), ""
        if job is not None and dialects.end_of([job]) is not None:
            if asked is None:
                raise _has_ended(job)
            known = annotation(job, names.CLAIM_UID)
            _server(api, job).remove(wait=True)
            job = None
        if job is None:
            if asked is None:
                raise _none(api, name)
            return self._make(api, name, asked, tell, known)
        if asked is not None and objects.digest_of(asked) != annotation(job, names.ASKED):
            raise Refused(
                f"{names.server_name(name)} is there, and was made with other settings",
                hint="`echelon jupyter down`, then `up`, changes them; your files stay",
            )
        _make_secret(api, name, job)
        try:
            _server(api, job, tell).wait(_Answers(api, tell, first=False))
        except ForbidsRoot as error:
            hint = "`echelon jupyter down`, then `up` again, makes one that does not run as root"
            raise Refused(error.message, hint=hint) from None
        return ServerFound(name=name, image=_image(job), created=False)

    def _make(
        self, api: Api, name: str, asked: ServerSettings, tell: Callable[[str], object], known: str
    ) -> ServerFound:
        """Make a server; `known` is the uid of the claim for its files, by a server that was there before."""
        around = _around(api, asked)
        objects.server_object(name, asked, around)  # refuses what cannot be, before anything is there
        claim = _make_claim(api, name, asked, around.owner)
        if claim.new:
            self._claims.remember(claim.uid, names.server_claim(name))
        if claim.new or claim.uid == known or self._claims.has(claim.uid):
            around = replace(around, claim=claim.uid)
        server = _server(api, None, tell)
        try:
            server.make(
                lambda level: objects.server_object(name, asked, replace(around, level=level)),
                _Answers(api, tell, first=True),
                lambda job: _make_secret(api, name, job),
            )
        except EchelonError as error:
            server.remove(wait=True)
            if claim.new and not isinstance(
                error, AlreadyThere
            ):  # another `up` was faster, and uses the claim
                api.delete("PersistentVolumeClaim", names.server_claim(name), uid=claim.uid)
                self._claims.forget(claim.uid)
            raise
        return ServerFound(name=name, image=_image(server.job), created=True)

    def open(
        self,
        name: str,
        port: int | None,
        show: Callable[[str], object],
        tell: Callable[[str], object],
    ) -> None:
        """Pass connections on until the server is gone for good."""
        api = self._connect()
        job = _find(api, name)
        if job is None:
            raise _none(api, name)
        pod = _running_pod(api, job)
        secret = api.find("Secret", names.server_name(name))
        ours = secret is not None and is_owned_by(secret, job["metadata"]["uid"])
        token = objects.token_of(secret or {}) if ours else ""
        if not token:
            raise Unavailable(
                f"{names.server_name(name)} has no token yet", hint="`echelon jupyter up` gives it one"
            )

        def present(before: str) -> str:
            try:
                there = _find(api, name)
            except EchelonError:  # an API server that is away for a while
                return before
            if there is None:
                raise _none(api, name)
            try:
                return _running_pod(api, there)
            except EchelonError:
                if dialects.end_of([there]) is not None:
                    raise
                return before  # it is being replaced

        local = port if port is not None else names.NOTEBOOK_PORT if _is_free(names.NOTEBOOK_PORT) else 0
        pass_on(
            api,
            [PortPair(local=local, remote=names.NOTEBOOK_PORT)],
            pod,
            present,
            opened=lambda here, _: show(f"http://localhost:{here}/?token={token}"),
            tell=tell,
        )

    def down(self, name: str, *, volumes: bool) -> ServerRemoved:
        """Remove the Job, and with it the pod and the Secret; the claim only if asked to."""
        api = self._connect()
        job = _find(api, name)
        if job is not None:
            _server(api, job).remove(wait=True)
        found = ServerRemoved(was_there=job is not None)
        claim = api.find_shape("PersistentVolumeClaim", shapes.Claim, names.server_claim(name))
        if claim is None or not (volumes or _is_ours(claim.metadata.labels)):
            return found
        called, uid = claim.metadata.name, claim.metadata.uid
        if not volumes:
            return replace(found, kept=called)
        # Anybody may give a claim its name and labels.
        known = job is not None and annotation(job, names.CLAIM_UID) == uid
        if not _is_ours(claim.metadata.labels) or not (known or self._claims.has(uid)):
            return replace(found, left=called)
        api.delete("PersistentVolumeClaim", called, uid=uid)
        _wait_until(lambda: not api.exists("PersistentVolumeClaim", called), f"volume {called}")
        self._claims.forget(uid)
        return replace(found, removed=called)


def _find(api: Api, name: str) -> Object | None:
    """The server's Job; one that is on its way out is waited for."""
    called = names.server_name(name)
    while (job := api.find("Job", called)) is not None:
        if not _is_ours(job["metadata"].get("labels") or {}):
            raise Refused(
                f"a Job named {called!r} is in the namespace, and it is not a notebook server of echelon's",
                hint="choose another name with --name",
            )
        if not job["metadata"].get("deletionTimestamp"):
            return job
        _wait_until(lambda: api.find("Job", called) is None, called)
    return None


def _around(api: Api, asked: ServerSettings) -> Surrounding:
    try:
        nodes = api.list_shapes("Node", shapes.Node) if asked.resources.gpus else ()
    except Denied:
        nodes = ()
    return Surrounding(
        owner=current_user(),
        gpu_resource=gpu_resource(nodes, asked.resources.gpu_type),
    )


@frozen
class _Claim:
    """The claim for a server's files: its uid, "" if it is the user's own or there is none."""

    uid: str = ""
    new: bool = False


def _make_claim(api: Api, name: str, asked: ServerSettings, owner: str) -> _Claim:
    """Make the claim for the files, if one is to be made and is not there."""
    wanted = objects.claim_object(name, asked, owner)
    if wanted is None or asked.files is None:
        return _Claim()
    called = wanted["metadata"]["name"]
    if (there := api.find_shape("PersistentVolumeClaim", shapes.Claim, called)) is None:
        files, marks = asked.files, wanted["metadata"]["labels"]
        try:
            made = create_volume(
                api, called, size=files.size, storage_class=files.storage_class, marks=marks, owner=owner
            )
        except InvalidJob as error:
            hint = f"{error.hint}; --volume new:10Gi@CLASS names one, --volume none keeps no files"
            raise InvalidJob("volume", called, f"cannot be made: {error.message}", hint=hint) from None
        return _Claim(uid=made.uid, new=True)
    if not _is_ours(there.metadata.labels):
        raise Refused(
            f"a volume named {called!r} is in the namespace, and it is not a notebook server's",
            hint=f"--volume pvc:{called} uses it, --name chooses another name",
        )
    return _Claim(uid=there.metadata.uid)


def _make_secret(api: Api, name: str, job: Object) -> None:
    """Make the Secret with the token; one of a server before, which goes with its Job, is waited for."""
    called, owner = names.server_name(name), annotation(job, names.OWNER)

    def is_there() -> bool:
        with suppress(AlreadyThere):
            api.create(objects.secret_object(name, owner, job, secrets.token_urlsafe(32)))
            return True
        found = api.find("Secret", called)
        if found is None or is_owned_by(found, job["metadata"]["uid"]):
            return found is not None
        owners = found["metadata"].get("ownerReferences") or ()
        if any((each.get("kind"), each.get("name")) == ("Job", called) for each in owners):
            return False
        raise Refused(
            f"a Secret named {called!r} is in the namespace, and it is not a notebook server's",
            hint="choose another name with --name",
        )

    _wait_until(is_there, f"Secret {called}")


def _server(api: Api, job: Object | None, tell: Callable[[str], object] = lambda _: None) -> OnePod:
    """The pod of a server, whose Job may be there already. Images with Jupyter are large: no time is set."""
    return OnePod(api, _WHO, Patience(), tell, job=job)


class _Answers:
    """Whether a server answers in its pod. Of the `first` pod, an end is the server's: one that ran before is
    started again by its Job.
    """

    def __init__(self, api: Api, tell: Callable[[str], object], *, first: bool) -> None:
        self._api, self._tell, self._first = api, tell, first
        self._begun: float | None = time.monotonic()

    def __call__(self, pod: Pod) -> bool:
        if workers.is_running(pod):
            if _answers(self._api, pod.metadata.name):
                return True
            if self._begun is not None and time.monotonic() - self._begun > _STARTS:
                self._begun = None
                self._tell("Jupyter is starting")
        elif self._first and workers.has_ended(pod):
            raise _why_ended(pod)
        return False


def _answers(api: Api, pod: str) -> bool:
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
    except (EchelonError, OSError, TimeoutError):  # nothing listens yet; that a pod ended is seen elsewhere
        return False
    return answer.split(b" ")[1:2] == [b"200"]


def _why_ended(pod: Pod) -> EchelonError:
    """Why a server ended at its start."""
    end = workers.container_end(pod)
    if end is not None and end.exit_code == NO_JUPYTER:
        image = workers.worker_container(pod.spec).image
        return Unavailable(f"the image {image} has no Jupyter", hint="choose one with jupyterlab in it")
    loss = workers.loss_of(pod)
    lines = [line for line in (end.message if end is not None else "").splitlines() if line.strip()]
    how = loss.how if loss is not None else "Jupyter has ended"
    said = f": {lines[-1].strip()}" if lines else ""
    return Unavailable(f"{_WHO} did not start: {how}{said}", hint="does the image's Jupyter work?")


def _has_ended(job: Object) -> Unavailable:
    """The error for a server that was shut down, or failed too often."""
    hint = "`echelon jupyter up --image IMAGE` starts it again; its files are there"
    return Unavailable(f"{job['metadata']['name']} has ended", hint=hint)


def _running_pod(api: Api, job: Object) -> str:
    """The name of the pod that runs; Unavailable, with the reason, if none does."""
    server = _server(api, job)
    pods = server.pods()
    if pods and workers.is_running(pods[-1]):
        return pods[-1].metadata.name
    if dialects.end_of([job]) is not None:
        raise _has_ended(job)
    hint = "`echelon jupyter up` waits for it"
    raise Unavailable(server.explain() or f"{_WHO} does not run yet", hint=hint)


def _wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _GONE
    while not done():
        if time.monotonic() > deadline:
            raise Refused(f"{what} is still being removed", hint="`echelon jupyter down` goes on with it")
        time.sleep(_LOOK)


def _none(api: Api, name: str) -> Unavailable:
    return Unavailable(
        f"there is no {names.server_name(name)} in namespace {api.namespace}",
        hint="`echelon jupyter up --image IMAGE` makes one",
    )


def _is_ours(labels: Mapping[str, str]) -> bool:
    """Whether an object is a server's: it carries two labels of ours, one of which alone others use too."""
    return (labels.get(names.COMPONENT), labels.get(names.MANAGED_BY)) == (names.NOTEBOOK, "echelon")


def _image(job: Object) -> str:
    return str(job["spec"]["template"]["spec"]["containers"][0]["image"])


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
