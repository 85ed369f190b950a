"""All checks of a cluster in order: `echelon doctor --on k8s`.

Each line is ok, degraded (with what then does not work) or missing (with the command that fixes it). Nothing
is created in the cluster unless an image is named to be tried; a check that the user has no right to do
becomes a line that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.client.identity import user_name
from echelon.engines.kubernetes.doctor import environment
from echelon.engines.kubernetes.doctor.addons import check_addons
from echelon.engines.kubernetes.doctor.policies import check_policies
from echelon.engines.kubernetes.doctor.rights import Need, check_rights, missing_verbs, to_manifests
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.nodes.devices import look_for_devices
from echelon.errors import Denied, EchelonError, Unreachable
from echelon.model.engine.finding import Finding

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

T = TypeVar("T")
_NAME_SERVICES = ("kube-dns", "coredns", "rke2-coredns-rke2-coredns")


def check_up(connect: Callable[[], Api], image: str | None = None, workers: int = 1) -> Iterator[Finding]:
    """Run every check; an unreachable cluster ends them."""
    try:
        api = connect()
        yield _reach(api)
        yield environment.check_version(api.raw("/version"))
        user = _who(api)
    except EchelonError as error:
        yield Finding(level="missing", what="cluster", found=error.message, fix=error.hint)
        return
    try:
        yield from _look(api, image, user, workers)
    except Unreachable as error:  # it became unreachable meanwhile
        yield Finding(level="missing", what="cluster", found=error.message, fix=error.hint)


def _look(api: Api, image: str | None, user: str, workers: int) -> Iterator[Finding]:
    from echelon.engines.kubernetes.client.api import NotThere

    try:
        namespace = _ask(lambda: api.get("Namespace", api.namespace))
    except NotThere:
        yield Finding(
            level="missing",
            what="namespace",
            found=f"{api.namespace} does not exist",
            fix=f"anything: kubectl create namespace {quote(api.namespace)}, or choose another with "
            "--namespace",
        )
        return
    yield Finding(
        level="ok", what="namespace", found=f"{api.namespace}, as {user or 'a user without a name'}"
    )

    yield from check_rights(_asking(api, namespace), api.namespace, user)
    yield from _check_nodes(api)
    classes = _ask(lambda: api.list_shapes("StorageClass", shapes.StorageClass))
    claims = _ask(lambda: api.list_shapes("PersistentVolumeClaim", shapes.Claim)) or ()
    yield from environment.check_storage(classes, claims)
    yield environment.check_security(namespace, api.namespace)
    quotas = _ask(lambda: api.list("ResourceQuota").items)
    ranges = _ask(lambda: api.list("LimitRange").items)
    yield from environment.check_quotas(quotas, ranges)
    yield _check_policies(api, namespace)
    yield from _check_image_and_names(api, image)
    if image is not None and workers > 1:
        from echelon.engines.kubernetes.doctor.network import probe_network

        yield from probe_network(api, image)
    yield from check_addons(api)


def missing_rights(api: Api) -> list[dict[str, Any]]:
    """The Roles that grant what the user lacks, for an administrator to apply."""
    namespace = _ask(lambda: api.get("Namespace", api.namespace))
    return to_manifests(missing_verbs(_asking(api, namespace)), api.namespace, _who(api))


def _asking(api: Api, namespace: dict[str, Any] | None) -> Callable[[Need, str], bool]:
    from echelon.engines.kubernetes.client.api import ALL

    def may(need: Need, verb: str) -> bool:
        if need.kind == "Namespace":  # a review does not know the namespace as its own: reading it decides
            return namespace is not None
        where = ALL if need.role == "cluster" else None
        return api.may(verb, need.kind, subresource=need.subresource, namespace=where)

    return may


def _reach(api: Api) -> Finding:
    api.raw("/version")
    context = f" (context {api.access.context})" if api.access.context else ""
    return Finding(level="ok", what="cluster", found=f"{api.access.server} answers{context}")


def _who(api: Api) -> str:
    """The user name that the cluster sees; "" where it is too old to report it."""
    try:
        return user_name(api)
    except Unreachable:
        raise
    except EchelonError:
        return ""


def _check_nodes(api: Api) -> Iterator[Finding]:
    seen = inventory.see(api)
    nodes = seen.nodes
    cluster = None if nodes is None else inventory.to_cluster(nodes, seen.pods, seen.places, me=api.namespace)
    yield environment.check_nodes(cluster)
    devices = look_for_devices(api)
    yield from environment.check_gpus(cluster, nodes or [], devices, free_known=seen.all_namespaces)


def _check_policies(api: Api, namespace: dict[str, Any] | None) -> Finding:
    policies = _ask(lambda: api.list("NetworkPolicy").items)
    if policies is None:
        return Finding(
            level="ok",
            what="network policies",
            found="unknown: you may not list them; most clusters have none",
        )
    about = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    # Kubernetes sets this label on every namespace.
    return check_policies(policies, api.namespace, {"kubernetes.io/metadata.name": api.namespace, **about})


def _check_image_and_names(api: Api, image: str | None) -> Iterator[Finding]:
    if image is not None:
        from echelon.engines.kubernetes.doctor.probe import probe_image

        tried = list(probe_image(api, image))
        yield from tried
        if any(each.what == "DNS" for each in tried):
            return
    else:
        yield Finding(level="ok", what="image", found="not tried; --image REF pulls it in a short pod")
    selector = f"kubernetes.io/service-name in ({','.join(_NAME_SERVICES)})"
    slices = _ask(lambda: api.list("EndpointSlice", selector=selector, namespace="kube-system").items)
    yield environment.check_names(slices)


def _ask(question: Callable[[], T]) -> T | None:
    """The answer, or None where the user has no right to it."""
    try:
        return question()
    except Denied:
        return None
