"""Storage classes: which are known to serve pods of several nodes at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.engines.kubernetes.shapes import Claim, StorageClass

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
# Provisioners (or parts of their names) whose volumes several nodes can mount at once.
_SHARED = (
    "nfs", "efs.csi.aws.com", "fsx", "file.csi.azure.com", "blob.csi.azure.com", "filestore", "gcsfuse",
    "cephfs", "longhorn", "lustre", "weka", "juicefs", "portworx", "gluster", "smb.csi", "trident", "beegfs",
    "spectrumscale", "vastdata", "quobyte", "seaweedfs", "moosefs", "purestorage", "manila",
)  # fmt: skip


def is_default(storage_class: StorageClass) -> bool:
    """Whether claims that name no class are of this one."""
    return storage_class.metadata.annotations.get(DEFAULT_CLASS) == "true"


def shared_classes(classes: Sequence[StorageClass], claims: Sequence[Claim]) -> list[str]:
    """The names of classes with ReadWriteMany. A claim that is bound so proves its class; otherwise the
    provisioner's name decides.
    """
    proved = {
        claim.spec.storage_class_name
        for claim in claims
        if "ReadWriteMany" in claim.spec.access_modes and claim.status.phase == "Bound"
    }
    named = {each.metadata.name: each.provisioner for each in classes}
    return [
        name
        for name, provisioner in named.items()
        if name in proved or any(part in provisioner for part in _SHARED)
    ]
