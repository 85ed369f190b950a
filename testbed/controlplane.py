"""The control plane: etcd, API server, controller manager, scheduler, DNS, service proxy, as host processes.

Each daemon's flags are here and nowhere else.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from echelon.errors import Unavailable
from testbed import certificates, network, processes, programs, versions
from testbed.paths import AUDIT_LOG, CERTIFICATES, LOGS, STATE, write
from testbed.patience import FACTOR

ETCD = "http://127.0.0.1:23790"
# Kubernetes waits 50 s before a silent node becomes NotReady; tests wait for it often. Much less would be too
# little: on a busy machine a kubelet may get no processor for that long.
NODE_SILENCE = "40s"
# Requests of users are logged; those of Kubernetes' own components are not.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "None",
            "userGroups": ["system:nodes", "system:serviceaccounts:kube-system", "testbed:components"],
        },
        {
            "level": "None",
            "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"],
        },
        {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*", "/openapi*", "/version"]},
        {"level": "Metadata"},
    ],
}
COREFILE = f"""\
.:53 {{
    bind {network.GATEWAY}
    errors
    ready {network.GATEWAY}:8181
    cache 2
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {{kubeconfig}}
        ttl 1
    }}
}}
"""


def start() -> None:
    """Start everything but the nodes, in the order of dependency."""
    kubernetes = programs.program(versions.current())
    start_etcd()
    start_api_server()
    manager = _component("system:kube-controller-manager")
    processes.start(
        "kube-controller-manager",
        [
            kubernetes,
            "kube-controller-manager",
            f"--kubeconfig={manager}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--root-ca-file={certificates.AUTHORITY}",
            f"--service-account-private-key-file={certificates.SERVICE_ACCOUNT_KEY}",
            f"--cluster-signing-cert-file={certificates.AUTHORITY}",
            f"--cluster-signing-key-file={certificates.AUTHORITY_KEY}",
            f"--node-monitor-grace-period={NODE_SILENCE}",
            "--node-monitor-period=2s",
            "--use-service-account-credentials=true",
        ],
    )
    processes.start(
        "kube-scheduler",
        [
            kubernetes,
            "kube-scheduler",
            f"--kubeconfig={_component('system:kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ],
    )
    processes.start(
        "kube-proxy",
        [
            kubernetes,
            "kube-proxy",
            f"--kubeconfig={_component('system:kube-proxy')}",
            "--proxy-mode=nftables",
            "--conntrack-max-per-core=0",
            "--hostname-override=node-a",
            "--masquerade-all",
            "--metrics-bind-address=127.0.0.1:10249",
            "--healthz-bind-address=127.0.0.1:10256",
            f"--bind-address={network.GATEWAY}",
        ],
    )
    corefile = COREFILE.replace("{kubeconfig}", str(_component("testbed:dns", "system:masters")))
    processes.start("coredns", [programs.program("coredns"), "-conf", write(STATE / "Corefile", corefile)])


def start_etcd() -> None:
    """Start etcd; its data need not survive the machine, so it does not wait for the disk."""
    processes.start(
        "etcd",
        [
            programs.program("etcd", "server"),
            f"--data-dir={STATE / 'etcd'}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:23800",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
        ],
    )


def start_api_server() -> None:
    """Start the API server, and wait until it is ready."""
    server = CERTIFICATES / "apiserver"
    kubelet_certificate, kubelet_key = certificates.client_certificate(
        "kube-apiserver-kubelet-client", ["system:masters"]
    )
    processes.start(
        "kube-apiserver",
        [
            programs.program(versions.current()),
            "kube-apiserver",
            f"--etcd-servers={ETCD}",
            f"--bind-address={network.GATEWAY}",
            f"--advertise-address={network.GATEWAY}",
            f"--service-cluster-ip-range={network.SERVICE_NETWORK}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            f"--tls-cert-file={server}.crt",
            f"--tls-private-key-file={server}.key",
            f"--client-ca-file={certificates.AUTHORITY}",
            f"--service-account-key-file={certificates.SERVICE_ACCOUNT_KEY}",
            f"--service-account-signing-key-file={certificates.SERVICE_ACCOUNT_KEY}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--kubelet-client-certificate={kubelet_certificate}",
            f"--kubelet-client-key={kubelet_key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={write(STATE / 'audit-policy.yaml', yaml.safe_dump(AUDIT_POLICY))}",
            f"--audit-log-path={AUDIT_LOG}",
            "--audit-log-mode=blocking",
        ],
    )
    wait_ready()


def wait_ready(patience: float = 90.0) -> None:
    """Wait until the API server reports that it is ready."""
    wait_for(is_ready, "kube-apiserver", "the API server to be ready", patience)


def is_ready() -> bool:
    """Whether the API server answers and is ready."""
    return _ready_code() == 200


def wait_for(condition: Callable[[], bool], daemon: str, what: str, patience: float) -> None:
    """Wait for an effect of a daemon; a daemon that ends meanwhile is named with the end of its log. The
    patience is scaled.
    """
    patience *= FACTOR
    deadline = time.monotonic() + patience
    while not condition():
        record = processes.read(daemon)
        ended = record is None or not processes.is_alive(record)
        if ended or time.monotonic() > deadline:
            log = LOGS / f"{daemon}.log"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:]) if log.exists() else ""
            how = f"{daemon} ended" if ended else f"{patience:g} s were not enough"
            raise Unavailable(f"waiting for {what}: {how}\n{tail}", hint=f"its whole log is {log}")
        time.sleep(0.1)


def _component(user: str, *groups: str) -> Path:
    path = STATE / f"{user.rpartition(':')[2]}.kubeconfig"
    return certificates.write_kubeconfig(path, user, [*groups, "testbed:components"])


def _ready_code() -> int:
    context = ssl.create_default_context(cafile=str(certificates.AUTHORITY))
    connection = http.client.HTTPSConnection(network.GATEWAY, 6443, timeout=5, context=context)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
