"""A patch of the user's over echelon's pod: Kubernetes' rules, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from echelon.errors import InvalidJob
from echelon.model.pods.patch import apply_patch, check_patch

POD: dict[str, Any] = yaml.safe_load("""
metadata: {labels: {run: fm}}
spec:
  restartPolicy: Never
  tolerations: [{key: gpu, operator: Exists}]
  securityContext: {seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: worker
    image: ours
    env: [{name: A, value: ours}, {name: B, value: ours}]
    volumeMounts: [{name: work, mountPath: /work}]
  volumes: [{name: work, emptyDir: {}}]
""")


@pytest.mark.parametrize(
    ("patch", "path", "expected"),
    [
        ("metadata: {labels: {team: x}}", "metadata.labels", {"run": "fm", "team": "x"}),
        ("spec: {hostNetwork: true}", "spec.hostNetwork", True),
        ("spec: {tolerations: [{key: spot}]}", "spec.tolerations", [{"key": "spot"}]),  # a list without a key
        ("spec: {tolerations: null}", "spec.tolerations", None),
        (
            "spec: {securityContext: {$patch: replace, runAsUser: 7}}",
            "spec.securityContext",
            {"runAsUser": 7},
        ),
        ("spec: {volumes: [{name: data}]}", "spec.volumes.1", {"name": "data"}),
        ("spec: {volumes: [{name: work, $patch: delete}]}", "spec.volumes", []),
        ("spec: {volumes: [{$patch: replace}, {name: data}]}", "spec.volumes", [{"name": "data"}]),
        (
            "spec: {containers: [{name: proxy, image: p}]}",
            "spec.containers.1",
            {"name": "proxy", "image": "p"},
        ),
        ("spec: {containers: [{name: worker, tty: true}]}", "spec.containers.0.tty", True),
        ("spec: {containers: [{name: worker, tty: true}]}", "spec.containers.0.image", "ours"),
        (
            "spec: {containers: [{name: worker, env: [{name: B, value: x}, {name: C, value: y}]}]}",
            "spec.containers.0.env",
            [{"name": "A", "value": "ours"}, {"name": "B", "value": "x"}, {"name": "C", "value": "y"}],
        ),
        (
            "spec: {containers: [{name: worker, volumeMounts: [{name: d, mountPath: /work}]}]}",
            "spec.containers.0.volumeMounts",
            [{"name": "d", "mountPath": "/work"}],
        ),
        (
            "spec: {containers: [{name: worker, ports: [{containerPort: 80}]}]}",
            "spec.containers.0.ports.0.containerPort",
            80,
        ),
    ],
)
def test_a_patch(patch: str, path: str, expected: object) -> None:
    before = yaml.safe_dump(POD)
    found: Any = apply_patch(yaml.safe_load(patch), POD)
    for step in path.split("."):
        found = found[int(step)] if step.isdigit() else found.get(step)
    assert found == expected
    assert yaml.safe_dump(POD) == before


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        ("status: {}", "status"),
        ("spec: []", "spec"),
        ("metadata: {labels: {echelon.dev/run: x}}", "metadata.labels: echelon.dev/run"),
        ("spec: {restartPolicy: Always}", "spec.restartPolicy"),
        ("spec: {$patch: replace, hostNetwork: true}", "spec.restartPolicy"),
        ("spec: {volumes: [{name: work, hostPath: {path: /}}]}", "spec.volumes: work"),
        ("spec: {volumes: [{name: secret, $patch: delete}]}", "spec.volumes: secret"),
        ("spec: {volumes: [{$patch: replace}]}", "spec.volumes: bundle"),
        ("spec: {containers: [{name: worker, $patch: delete}]}", "spec.containers: worker"),
        ("spec: {containers: [{name: worker, image: x}]}", "worker: image"),
        ("spec: {containers: [{name: worker, command: [x]}]}", "worker: command"),
        ("spec: {containers: [{name: worker, args: [x]}]}", "worker: args"),
        ("spec: {containers: [{name: worker, resources: {limits: {cpu: 1}}}]}", "worker: resources"),
        (
            "spec: {containers: [{name: worker, env: [{name: ECHELON_POD_IP, value: x}]}]}",
            "worker: env: ECHELON_POD_IP",
        ),
        ("spec: {containers: [{name: worker, env: null}]}", "worker: env"),
        (
            "spec: {containers: [{name: worker, volumeMounts: [{mountPath: /echelon/x, name: x}]}]}",
            "volumeMounts: /echelon",
        ),
        ("spec: {containers: [{image: x}]}", "containers"),
        ("spec: {containers: [{name: worker, env: [{value: x}]}]}", "env"),
        ("spec: {volumes: text}", "volumes"),
    ],
)
def test_what_must_stay_is_refused_by_its_name(patch: str, named: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        check_patch("pod_patch", yaml.safe_load(patch))
    assert named in str(caught.value)


def test_what_echelon_does_not_care_about_is_not_refused() -> None:
    check_patch(
        "pod_patch",
        yaml.safe_load("""
metadata: {labels: {team: x}, annotations: {a: b}}
spec:
  hostNetwork: true
  tolerations: []
  containers:
  - {name: worker, env: [{name: MINE, value: x}], volumeMounts: [{mountPath: /echelons, name: d}]}
  - {name: beside, image: x, args: [a], env: [{name: ECHELON_POD_IP, value: x}]}
  volumes: [{name: shm, $patch: delete}, {name: d, emptyDir: {}}]
"""),
    )
