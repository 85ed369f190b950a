"""Troubles that need nothing but a namespace: what brings each about, for `test_situations.py`."""

from __future__ import annotations

from typing import Any

from testbed.kubectl import Object
from tests.engines.kubernetes.situations import AGENT, Situation, run_job


def claim(name: str, **spec: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            **spec,
        },
    }


def mounted(source: Object) -> dict[str, Any]:
    return {
        "volumes": [{"name": "data", **source}],
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }


def on_claim(name: str) -> dict[str, Any]:
    return mounted({"persistentVolumeClaim": {"claimName": name}})


def from_secret(name: str, key: str) -> Object:
    reference = {"secretKeyRef": {"name": name, "key": key}}
    return {"env": [{"name": "TOKEN", "valueFrom": reference}]}


def ordinary(image: str) -> list[Situation]:
    """Troubles that need nothing but a namespace."""
    there = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there"}, "stringData": {"a": "b"}}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    one_key = {"configMap": {"name": "settings", "items": [{"key": "gone", "path": "gone"}]}}
    return [
        Situation(
            name="image-no-such-host", kind="registry", objects=[run_job("no-host", "registry.invalid/a/b:1")]
        ),
        Situation(
            name="image-invalid-name", kind="invalid-image", objects=[run_job("bad-name", "UPPER/Case:1")]
        ),
        Situation(
            name="image-never-pulled",
            kind="image",
            objects=[run_job("never", "testbed/absent:1", container={"imagePullPolicy": "Never"})],
        ),
        Situation(
            name="config-secret-missing",
            kind="config",
            objects=[run_job("no-secret", image, container=from_secret("absent", "token"))],
        ),
        Situation(
            name="config-secret-without-key",
            kind="config",
            objects=[there, run_job("no-key", image, container=from_secret("there", "token"))],
        ),
        Situation(
            name="config-runs-as-root",
            kind="config",
            objects=[run_job("as-root", image, securityContext={"runAsNonRoot": True})],
        ),
        Situation(
            name="start-no-python",
            kind="start",
            objects=[run_job("no-python", image, container={"command": ["python9", "-c", "pass"]})],
        ),
        Situation(
            name="start-no-python-path",
            kind="start",
            objects=[run_job("no-path", image, container={"command": ["/opt/python", "-c", "pass"]})],
        ),
        Situation(
            name="start-not-executable",
            kind="start",
            objects=[run_job("no-right", image, container={"command": ["/etc/passwd"]})],
        ),
        Situation(
            name="start-no-folder",
            kind="start",
            objects=[run_job("no-folder", image, container={"workingDir": "/proc/nowhere"})],
        ),
        Situation(
            name="mount-configmap-missing",
            kind="mount",
            objects=[run_job("no-map", image, **mounted({"configMap": {"name": "absent"}}))],
        ),
        Situation(
            name="mount-secret-missing",
            kind="mount",
            objects=[run_job("no-secret-file", image, **mounted({"secret": {"secretName": "absent"}}))],
        ),
        Situation(
            name="mount-key-missing",
            kind="mount",
            objects=[settings, run_job("no-file", image, **mounted(one_key))],
        ),
        Situation(
            name="mount-not-a-folder",
            kind="mount",
            objects=[
                run_job(
                    "no-dir", image, **mounted({"hostPath": {"path": "/absent/folder", "type": "Directory"}})
                )
            ],
        ),
        Situation(
            name="claim-missing", kind="claim", objects=[run_job("no-claim", image, **on_claim("absent"))]
        ),
        Situation(
            name="claim-class-missing",
            kind="claim",
            objects=[
                claim("odd", storageClassName="absent"),
                run_job("no-class", image, **on_claim("odd")),
            ],
        ),
        Situation(
            name="claim-no-class",
            kind="claim",
            objects=[claim("bare", storageClassName=""), run_job("bare-claim", image, **on_claim("bare"))],
        ),
        Situation(
            name="unschedulable-cpu",
            kind="unschedulable",
            objects=[run_job("too-wide", image, container={"resources": {"requests": {"cpu": "900"}}})],
        ),
        Situation(
            name="unschedulable-memory",
            kind="unschedulable",
            objects=[run_job("too-deep", image, container={"resources": {"requests": {"memory": "900Ti"}}})],
        ),
        Situation(
            name="unschedulable-no-gpu",
            kind="unschedulable",
            objects=[
                run_job(
                    "no-gpu", image, workers=3, container={"resources": {"limits": {"nvidia.com/gpu": "2"}}}
                )
            ],
        ),
        Situation(
            name="unschedulable-selector",
            kind="unschedulable",
            objects=[run_job("nowhere", image, nodeSelector={"disk": "fast"})],
        ),
        Situation(
            name="unschedulable-gate",
            kind="unschedulable",
            objects=[run_job("gated", image, schedulingGates=[{"name": "example.com/gate"}])],
        ),
        Situation(
            name="silent-scheduler",
            kind="silent",
            objects=[run_job("no-sched", image, schedulerName="nobody")],
        ),
        Situation(
            name="silent-controller",
            kind="silent",
            objects=[run_job("unmanaged", image, spec={"managedBy": "example.com/nobody"})],
        ),
        Situation(
            name="refused-service-account",
            kind="refused",
            objects=[run_job("no-account", image, serviceAccountName="absent")],
        ),
        Situation(
            name="refused-priority-class",
            kind="refused",
            objects=[run_job("no-priority", image, priorityClassName="absent")],
        ),
        Situation(
            name="oom",
            kind="oom",
            objects=[
                run_job(
                    "hungry",
                    image,
                    AGENT + "time.sleep(1); food = bytearray(256 << 20)\n",
                    container={"resources": {"limits": {"memory": "32Mi"}}},
                )
            ],
        ),
        Situation(
            name="lost-init-container",
            kind="lost",
            objects=[
                run_job(
                    "preceded",
                    image,
                    initContainers=[
                        {"name": "mesh", "image": image, "command": ["python3", "-c", "exit(3)"]}
                    ],
                )
            ],
        ),
        Situation(
            name="create-init-image",
            kind="create",
            objects=[
                run_job(
                    "hindered",
                    image,
                    initContainers=[{"name": "mesh", "image": "BAD", "imagePullPolicy": "IfNotPresent"}],
                )
            ],
        ),
        Situation(
            name="lost-exit-code", kind="lost", objects=[run_job("clumsy", image, AGENT + "sys.exit(7)\n")]
        ),
    ]
