"""Volume claims that pods wait for: missing, unbound, or bound where the pod cannot run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from echelon.engines.kubernetes.diagnose.cluster_events import ClusterEvent, Events
from echelon.engines.kubernetes.diagnose.trouble import Finding
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.pods import Spec
from echelon.engines.kubernetes.shapes import Claim, ClaimSpec

_SHARED = ("ReadWriteMany", "ReadOnlyMany")


def claims_of(spec: Spec) -> list[str]:
    """The claims that a pod mounts, each once."""
    sources = (volume.persistent_volume_claim for volume in spec.volumes)
    return list(dict.fromkeys(each.claim_name for each in sources if each is not None))


def claim_trouble(
    name: str, claim: Claim | None, events: Events, worker: int, since: float | None
) -> Finding | None:
    """What is wrong with a claim that a worker waits for; None if it is bound, or will be with the pod.

    `claim` is None if it does not exist."""
    if claim is None:
        return Finding(
            kind="claim",
            text=f"volume claim {name}, which {{who}} would mount, does not exist",
            workers=(worker,),
            hint=f"`echelon volume create {quote(name)}` makes one; `echelon volume ls` shows what there is",
            healable=False,
            since=since,
        )
    about, spec, phase = claim.metadata, claim.spec, claim.status.phase
    if about.deletion_timestamp:
        return Finding(
            kind="claim",
            text=f"volume claim {name} is being deleted",
            workers=(worker,),
            hint="wait until it is gone and make it again, or mount another",
            healable=False,
            since=since,
        )
    if phase == "Lost":
        return Finding(
            kind="claim",
            text=f"volume claim {name} has lost its volume {spec.volume_name}".rstrip(),
            workers=(worker,),
            hint="its data are gone with it: `echelon volume rm` and make another",
            healable=False,
            since=since,
        )
    if phase == "Bound":
        return None
    told = events.of("PersistentVolumeClaim", name, about.uid)
    return _unbound(name, spec, told, worker, moment(about.creation_timestamp))


def is_tied(claim: Claim | None) -> bool:
    """Whether a claim can be mounted on one node at a time only."""
    modes = claim.spec.access_modes if claim is not None else ()
    return bool(modes) and not any(mode in _SHARED for mode in modes)


def _unbound(
    name: str, spec: ClaimSpec, events: Sequence[ClusterEvent], worker: int, begun: float | None
) -> Finding | None:
    # Between two failures there are many events that the provisioner is awaited: failures matter more.
    failures = [each for each in events if each.reason == "ProvisioningFailed"]
    last = failures[-1] if failures else events[-1] if events else None
    reason, message = (last.reason, last.message) if last else ("", "")
    kind_of = spec.storage_class_name
    if reason == "ProvisioningFailed":
        missing = "not found" in message and "storageclass" in message
        text = (
            f"volume claim {name} asks for storage class {kind_of}, which does not exist"
            if missing
            else f"no volume can be made for claim {name}: {message}"
        )
        hint = (
            "`kubectl get storageclass` shows what there is; make the claim again with one of them"
            if missing
            else f"`kubectl describe pvc {quote(name)}` has more; another storage class may serve"
        )
        return Finding(
            kind="claim",
            text=text,
            workers=(worker,),
            hint=hint,
            healable=False,
            since=last.first if last else None,
        )
    if reason == "FailedBinding" and not kind_of:
        return Finding(
            kind="claim",
            text=f"volume claim {name} has no storage class, and no volume that is there fits it",
            workers=(worker,),
            hint="make it again with a class of `kubectl get storageclass`, or ask for a volume that fits",
            healable=False,
            since=last.first if last else None,
        )
    if reason == "ExternalProvisioning":
        return Finding(
            kind="volume",
            text=f"{{who}} cannot start before volume claim {name} has its volume, which is being made",
            workers=(worker,),
            hint=f"if that goes on, is the provisioner of class {kind_of} at work?"
            f" `kubectl describe pvc {quote(name)}`",
            since=begun,
        )
    if reason in ("WaitForFirstConsumer", "WaitForPodScheduled"):
        return None  # it is bound once the pod is scheduled: the scheduler's reason counts
    return Finding(
        kind="volume",
        text=f"{{who}} cannot start before volume claim {name} is bound to a volume",
        workers=(worker,),
        hint=f"`kubectl describe pvc {quote(name)}` says what it waits for",
        since=begun,
    )
