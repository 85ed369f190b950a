"""Storage classes: which are known to serve pods of several nodes at once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]
# Provisioners (or parts of their names) whose volumes several nodes can mount at once.
_SHARED = (
    "nfs", "efs.csi.aws.com", "fsx", "file.csi.azure.com", "blob.csi.azure.com", "filestore", "gcsfuse",
    "cephfs", "longhorn", "lustre", "weka", "juicefs", "portworx", "gluster", "smb.csi", "trident", "beegfs",
    "spectrumscale", "vastdata", "quobyte", "seaweedfs", "moosefs", "purestorage", "manila",
)  # fmt: skip


def shared_classes(classes: Sequence[Object], claims: Sequence[Object]) -> list[str]:
    """The names of classes with ReadWriteMany. A claim that is bound so proves its class; otherwise the
    provisioner's name decides.
    """
    proved = {
        str(claim["spec"].get("storageClassName"))
        for claim in claims
        if "ReadWriteMany" in (claim["spec"].get("accessModes") or ())
        and (claim.get("status") or {}).get("phase") == "Bound"
    }
    named = {str(each["metadata"]["name"]): str(each.get("provisioner", "")) for each in classes}
    return [
        name
        for name, provisioner in named.items()
        if name in proved or any(part in provisioner for part in _SHARED)
    ]
