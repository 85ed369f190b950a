"""The fields that Kubernetes knows in a pod's spec and in a container; any other is a mistake."""

from __future__ import annotations

# fmt: off
POD_FIELDS = frozenset((
    "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig",
    "dnsPolicy", "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork",
    "hostPID", "hostUsers", "hostname", "imagePullSecrets", "initContainers", "nodeName",
    "nodeSelector", "os", "overhead", "preemptionPolicy", "priority", "priorityClassName",
    "readinessGates", "resourceClaims", "resources", "restartPolicy", "runtimeClassName",
    "schedulerName", "schedulingGates", "securityContext", "serviceAccount", "serviceAccountName",
    "setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds",
    "tolerations", "topologySpreadConstraints", "volumes",
))
CONTAINER_FIELDS = frozenset((
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe",
    "name", "ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "securityContext",
    "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty",
    "volumeDevices", "volumeMounts", "workingDir",
))
# fmt: on
