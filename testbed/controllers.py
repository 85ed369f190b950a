"""Controllers beside Kubernetes' own, each built and started by name, on demand.

They run as host processes with a kubeconfig; their custom resource definitions come from their own modules.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from echelon.errors import Unavailable
from testbed import processes, programs
from testbed.certificates import write_kubeconfig
from testbed.debian import tool
from testbed.images import reference
from testbed.kubectl import Kubectl
from testbed.paths import KUBECONFIG, STATE


def start(name: str) -> None:
    """Build a controller if needed and start it, unless it runs."""
    if name not in CONTROLLERS:
        raise Unavailable(
            f"no controller is called {name!r}", hint=f"there are: {', '.join(sorted(CONTROLLERS))}"
        )
    record = processes.read(f"controller-{name}")
    if record is None or not processes.is_alive(record):
        CONTROLLERS[name]()


def stop(name: str) -> None:
    """Stop a controller; the objects that it created stay."""
    processes.stop([f"controller-{name}"])


def _kubeconfig(name: str) -> Path:
    return write_kubeconfig(
        STATE / f"controller-{name}.kubeconfig", f"testbed:{name}", ["system:masters", "testbed:components"]
    )


def _start_kwok() -> None:
    processes.start(
        "controller-kwok",
        [
            programs.program("kwok"),
            f"--kubeconfig={_kubeconfig('kwok')}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=200",
            "--server-address=127.0.0.1:10247",
        ],
    )


def _start_training_operator() -> None:
    """Kubeflow's first-generation operator, without its webhook: nothing validates what tests write."""
    kubectl = Kubectl(kubeconfig=KUBECONFIG)
    home = programs.folder("training-operator")
    # Server-side apply: these definitions exceed the annotation of client-side apply.
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(home / "crds"))
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "training-operator-webhook-cert", "namespace": "kubeflow"},
        },
    )
    # The operator reads its webhook's certificate from a fixed folder below /tmp: it gets a /tmp of its own,
    # in a mount namespace that ends with it.
    temporary = STATE / "training-operator"
    serving = temporary / "k8s-webhook-server" / "serving-certs"
    serving.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            tool("openssl"),
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=training-operator",
            "-keyout",
            str(serving / "tls.key"),
            "-out",
            str(serving / "tls.crt"),
        ],
        capture_output=True,
        check=True,
    )
    processes.start(
        "controller-training-operator",
        [
            tool("unshare"),
            "--mount",
            tool("sh"),
            "-c",
            'mount --bind "$0" /tmp && exec "$@"',
            temporary,
            home / "training-operator.v1",
            f"--kubeconfig={_kubeconfig('training-operator')}",
            "--enable-scheme=pytorchjob",
            "--enable-scheme=tfjob",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=127.0.0.1:18081",
            "--webhook-server-port=19443",
            f"--pytorch-init-container-image={reference('nslookup')}",
        ],
        environment={"MY_POD_NAMESPACE": "kubeflow"},
    )


CONTROLLERS: dict[str, Callable[[], None]] = {
    "kwok": _start_kwok,
    "training-operator": _start_training_operator,
}
