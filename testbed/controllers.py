"""Controllers beside Kubernetes' own, each built and started by name, on demand.

They run as host processes with a kubeconfig; their custom resource definitions come from their own modules.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import yaml

from echelon.errors import Unavailable
from testbed import processes, programs
from testbed.certificates import authority, server_certificate, write_kubeconfig
from testbed.debian import tool
from testbed.images import reference
from testbed.kubectl import Kubectl
from testbed.locking import held, tried
from testbed.paths import KUBECONFIG, LOGS, STATE, write

_PORT_PATIENCE = 60.0  # seconds
_ON_8080 = (
    "mpi-operator",
    "tekton",
)  # serve their health there, Tekton's beside another port: no flag changes it


def start(name: str) -> None:
    """Build a controller if needed and start it, unless it runs."""
    if name not in CONTROLLERS:
        raise Unavailable(
            f"no controller is called {name!r}", hint=f"there are: {', '.join(sorted(CONTROLLERS))}"
        )
    record = processes.read(f"controller-{name}")
    if record is None or not processes.is_alive(record):
        CONTROLLERS[name]()


@contextmanager
def using(name: str) -> Iterator[None]:
    """Keep a controller at work inside the block, for tests side by side: the last of its users stops it.
    One that needs the same port as another waits until nobody uses that.
    """
    users = _users(name)
    with ExitStack() as use:
        with held(STATE / "controllers-of-8080.starting") if name in _ON_8080 else nullcontext():
            for other in (each for each in _ON_8080 if name in _ON_8080 and each != name):
                with held(_users(other)):
                    stop(other)
            use.enter_context(held(users, shared=True))
        with held(STATE / f"controller-{name}.starting"):
            start(name)
        yield
    with tried(users) as alone:
        if alone:
            stop(name)


def _users(name: str) -> Path:
    return STATE / f"controller-{name}.users"


def stop(name: str) -> None:
    """Stop a controller; the objects that it created stay, and the API server asks it no more."""
    if name in _PORTS:
        kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        _kubectl()("delete", kinds, f"testbed-{name}", "--ignore-not-found")
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
    home = programs.folder("training-operator")
    # Its MPIJob is the first generation's, which it does not serve here: mpi-operator's has the same name.
    _install(
        *(path for path in sorted((home / "crds").glob("kubeflow.org_*.yaml")) if "mpi" not in path.name)
    )
    _kubectl().apply(
        _KUBEFLOW,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "training-operator-webhook-cert", "namespace": "kubeflow"},
        },
    )
    _start_with_certificate(
        "training-operator",
        [
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


def _start_tekton() -> None:
    """Tekton's controller, without its webhook: nothing validates or completes what tests write."""
    home = programs.folder("tekton")
    config = home / "config"
    _kubectl()("apply", "-f", str(config / "100-namespace"))
    _install(config / "300-crds")
    settings = [word for path in sorted(config.glob("config-*.yaml")) for word in ("-f", str(path))]
    _kubectl()("apply", *settings)
    never = "testbed/never-asked-for"  # of what these pipelines have not: scripts, sidecars, working folders
    unused = ("sidecarlogresults", "workingdirinit", "shell")
    processes.start(
        "controller-tekton",
        [
            home / "controller",
            f"-kubeconfig={_kubeconfig('tekton')}",
            "-disable-ha",
            f"-entrypoint-image={reference('tekton')}",
            f"-nop-image={reference('tekton')}",
            *(f"-{name}-image={never}" for name in unused),
            f"-shell-image-win={never}",
        ],
        environment={
            "SYSTEM_NAMESPACE": "tekton-pipelines",
            "KUBERNETES_MIN_VERSION": "v1.28.0",
            "CONFIG_DEFAULTS_NAME": "config-defaults",
            "CONFIG_LOGGING_NAME": "config-logging",
            "CONFIG_OBSERVABILITY_NAME": "config-observability",
            "CONFIG_FEATURE_FLAGS_NAME": "feature-flags",
            "CONFIG_LEADERELECTION_NAME": "config-leader-election-controller",
            "CONFIG_SPIRE": "config-spire",
            "METRICS_DOMAIN": "tekton.dev/pipeline",
            "METRICS_PROMETHEUS_PORT": "19092",
            "PROFILING_PORT": "18008",
            "PROBES_PORT": "18082",
        },
    )


def _start_mpi_operator() -> None:
    home = programs.folder("job-controllers")
    _install(home / "github.com/kubeflow/mpi-operator/manifests/base/kubeflow.org_mpijobs.yaml")
    _kubectl().apply(_KUBEFLOW)
    command: list[str | Path] = [
        home / "mpi-operator",
        f"--kubeConfig={_kubeconfig('mpi-operator')}",
        "--lock-namespace=kubeflow",
    ]
    # It ends at once where something else has port 8080 for a while.
    deadline = time.monotonic() + _PORT_PATIENCE
    while not _stays(processes.start("controller-mpi-operator", command)):
        if time.monotonic() > deadline:
            raise Unavailable(
                "mpi-operator ends as soon as it is started",
                hint=f"see {LOGS / 'controller-mpi-operator.log'}; it needs port 8080",
            )


def _stays(daemon: processes.Record) -> bool:
    """Whether a daemon outlives the first seconds."""
    until = time.monotonic() + 2.0
    while processes.is_alive(daemon):
        if time.monotonic() > until:
            return True
        time.sleep(0.1)
    return False


def _start_jobset() -> None:
    """With the webhooks of its own objects: the defaults that they fill in are needed. Those of pods, which
    every pod of the cluster would have to pass, are left out.
    """
    home = programs.folder("job-controllers")
    components = home / "sigs.k8s.io/jobset/config/components"
    _install(components / "crd" / "bases")
    settings = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "internalCertManagement": {"enable": False}}
    _start_with_certificate("jobset", _controller_manager(home / "jobset", "jobset", settings))
    _call_webhooks("jobset", components / "webhook" / "manifests.yaml", "jobset.x-k8s.io")


def _start_trainer() -> None:
    """Kubeflow's second generation: it makes JobSets, so it needs their controller beside it."""
    _install(programs.folder("job-controllers") / "sigs.k8s.io/jobset/config/components/crd/bases")
    home = programs.folder("job-controllers")
    manifests = home / "github.com/kubeflow/trainer/v2/manifests/base"
    _install(*sorted((manifests / "crds").glob("trainer.kubeflow.org_*.yaml")))
    settings = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "certManagement": {"enable": False}}
    program = home / "trainer-controller-manager"
    _start_with_certificate("trainer", _controller_manager(program, "trainer", settings))
    _call_webhooks("trainer", manifests / "webhook" / "manifests.yaml", "trainer.kubeflow.org")


def _start_kueue() -> None:
    """It sees the Jobs, PyTorchJobs and TFJobs that carry its label, and no other; of a kind that has no
    definition yet, those after it has one. Without its webhooks: a job in a queue must be suspended from the
    beginning.
    """
    home = programs.folder("kueue")
    _install(home / "bases")
    settings = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job", "kubeflow.org/pytorchjob", "kubeflow.org/tfjob"]},
    }
    command = _controller_manager(home / "kueue", "kueue", settings)
    _start_with_certificate("kueue", [*command, "--feature-gates=VisibilityOnDemand=false"])


def _kubectl() -> Kubectl:
    return Kubectl(kubeconfig=KUBECONFIG)


def _install(*definitions: Path) -> None:
    """Create a controller's custom resource definitions, and wait until they are served."""
    files = [word for path in definitions for word in ("-f", str(path))]
    # Server-side apply: these definitions exceed the annotation of client-side apply.
    _kubectl()("apply", "--server-side", "--force-conflicts", *files)

    def served() -> bool:
        # `kubectl wait` fails on a definition that is so new that it has no conditions yet.
        found = _kubectl().get(*files)
        return all(_is_served(each) for each in found.get("items", [found]))

    _kubectl().wait_for(served, "the definitions to be served")


def _is_served(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _controller_manager(program: Path, name: str, settings: dict[str, Any]) -> list[str | Path]:
    """The command of a program that takes its options from a file, on ports that no other has."""
    options = {
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{_PORTS[name] + 1}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": _PORTS[name]},
        "leaderElection": {"leaderElect": False},
        **settings,
    }
    path = STATE / f"controller-{name}.json"
    write(path, json.dumps(options))
    return [program, f"--kubeconfig={_kubeconfig(name)}", f"--config={path}"]


def _call_webhooks(name: str, manifest: Path, group: str) -> None:
    """Have the API server ask a controller about the objects of its own group, once it answers."""
    found = []
    for configuration in yaml.safe_load_all(manifest.read_text()):
        configuration["metadata"]["name"] = f"testbed-{name}"
        configuration["webhooks"] = [
            {**each, "clientConfig": _client_config(name, each["clientConfig"]["service"]["path"])}
            for each in configuration["webhooks"]
            if each["rules"][0]["apiGroups"] == [group]
        ]
        found.append(configuration)
    _kubectl().wait_for(lambda: _listens(_PORTS[name]), f"the webhooks of {name}")
    _kubectl().apply(*found)


def _client_config(name: str, path: str) -> dict[str, str]:
    return {"url": f"https://127.0.0.1:{_PORTS[name]}{path}", "caBundle": authority()}


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _start_with_certificate(
    name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None
) -> None:
    """Start a controller that reads the certificate of its servers from a fixed folder: it gets a /tmp and an
    /etc of its own, in a mount namespace that ends with it.
    """
    temporary, settings = STATE / name / "tmp", STATE / name / "etc"
    certificate, key = server_certificate(name)
    for folder in (
        temporary / "k8s-webhook-server" / "serving-certs",
        temporary / "k8s-metrics-server" / "serving-certs",
        settings / name / "metrics" / "certs",
    ):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(certificate, folder / "tls.crt")
        shutil.copy(key, folder / "tls.key")
    own = 'mount --bind "$0" /tmp && mount --bind "$1" /etc && shift && exec "$@"'
    words = [tool("unshare"), "--mount", tool("sh"), "-c", own, temporary, settings, *command]
    processes.start(f"controller-{name}", words, environment=environment)


_PORTS = {
    "jobset": 19444,
    "trainer": 19446,
    "kueue": 19448,
}  # of their webhooks; the next is for their health
_KUBEFLOW = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}}
CONTROLLERS: dict[str, Callable[[], None]] = {
    "jobset": _start_jobset,
    "kueue": _start_kueue,
    "kwok": _start_kwok,
    "tekton": _start_tekton,
    "mpi-operator": _start_mpi_operator,
    "trainer": _start_trainer,
    "training-operator": _start_training_operator,
}
