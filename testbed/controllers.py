"""Controllers beside Kubernetes' own, each built and started by name, on demand.

They run as host processes with a kubeconfig; their custom resource definitions come from their own modules.
Of some there are two releases, of which the newer one has its number in its name.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
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
# Of each of these, one at a time is at work. The first two serve their health on port 8080, which no flag
# changes; two releases of one controller would act on the same objects.
_APART = (
    ("mpi-operator", "tekton"),
    ("jobset", "jobset-0.12"),
    ("trainer", "trainer-2.3"),
    ("kueue", "kueue-0.19"),
)


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
    One that cannot be at work beside another waits until nobody uses that.
    """
    users, others = _users(name), apart_from(name)
    with ExitStack() as use:
        with held(STATE / f"controllers-{min(name, *others)}.starting") if others else nullcontext():
            for other in others:
                with held(_users(other)):
                    stop(other)
            use.enter_context(held(users, shared=True))
        with held(STATE / f"controller-{name}.starting"):
            start(name)
        yield
    with tried(users) as alone:
        if alone:
            stop(name)


def apart_from(name: str) -> tuple[str, ...]:
    """The controllers that cannot be at work beside this one."""
    group = next((each for each in _APART if name in each), ())
    return tuple(each for each in group if each != name)


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


def _start_jobset(name: str, source: str) -> None:
    """With the webhooks of its own objects: the defaults that they fill in are needed. Those of pods, which
    every pod of the cluster would have to pass, are left out.
    """
    home = programs.folder(source)
    components = home / "sigs.k8s.io/jobset/config/components"
    _install(components / "crd" / "bases")
    settings = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "internalCertManagement": {"enable": False}}
    _start_with_certificate(name, _controller_manager(home / "jobset", name, settings))
    _call_webhooks(name, components / "webhook" / "manifests.yaml", "jobset.x-k8s.io")


def _start_trainer(name: str, source: str) -> None:
    """Kubeflow's second generation: it makes JobSets, so it needs their controller beside it."""
    home = programs.folder(source)
    _install(home / "sigs.k8s.io/jobset/config/components/crd/bases")
    manifests = home / "github.com/kubeflow/trainer/v2/manifests/base"
    _install(*sorted((manifests / "crds").glob("trainer.kubeflow.org_*.yaml")))
    settings = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "certManagement": {"enable": False}}
    program = home / "trainer-controller-manager"
    _start_with_certificate(name, _controller_manager(program, name, settings))
    _call_webhooks(name, manifests / "webhook" / "manifests.yaml", "trainer.kubeflow.org")


def _start_kueue(name: str, version: str) -> None:
    """It sees the Jobs, PyTorchJobs and TFJobs that carry its label, and no other; of a kind that has no
    definition yet, those after it has one. Of its webhooks, only those that convert its objects are called: a
    job in a queue must be suspended from the beginning.
    """
    home = programs.folder(name)
    definitions = [yaml.safe_load(path.read_text()) for path in sorted((home / "bases").glob("*.yaml"))]
    for each in definitions:
        if len(each["spec"]["versions"]) > 1 and each["spec"]["names"]["plural"] in _CONVERTED:
            asks = {"clientConfig": _client_config(name, "/convert"), "conversionReviewVersions": ["v1"]}
            each["spec"]["conversion"] = {"strategy": "Webhook", "webhook": asks}
        _make_room(each)
    file = STATE / f"controller-{name}.definitions.json"
    write(file, json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}))
    _install(file)
    settings = {
        "apiVersion": f"config.kueue.x-k8s.io/{version}",
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job", "kubeflow.org/pytorchjob", "kubeflow.org/tfjob"]},
    }
    command = _controller_manager(home / "kueue", name, settings)
    _start_with_certificate(name, [*command, "--feature-gates=VisibilityOnDemand=false"])
    _kubectl().wait_for(lambda: _listens(_PORTS[name]), f"the webhooks of {name}")


def _make_room(definition: dict[str, Any]) -> None:
    """Delete the definition of another release that has a version which this one has not: the API server
    keeps none without the versions in which objects may have been stored.
    """
    name = definition["metadata"]["name"]
    there = _kubectl().find("customresourcedefinition", name)
    if there is not None:
        ours = {each["name"] for each in definition["spec"]["versions"]}
        if not ours.issuperset(each["name"] for each in there["spec"]["versions"]):
            _kubectl()("delete", "customresourcedefinition", name, "--timeout=60s")


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
        settings / name.partition("-")[0] / "metrics" / "certs",
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
    "jobset-0.12": 19450,
    "trainer-2.3": 19452,
    "kueue-0.19": 19454,
}  # of their webhooks; the next is for their health
# The kinds of Kueue's whose versions differ in more than their name.
_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "resourceflavors", "workloads")
_KUBEFLOW = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}}
CONTROLLERS: dict[str, Callable[[], None]] = {
    "jobset": partial(_start_jobset, "jobset", "job-controllers"),
    "jobset-0.12": partial(_start_jobset, "jobset-0.12", "trainer-2.3"),
    "kueue": partial(_start_kueue, "kueue", "v1beta1"),
    "kueue-0.19": partial(_start_kueue, "kueue-0.19", "v1beta2"),
    "kwok": _start_kwok,
    "tekton": _start_tekton,
    "mpi-operator": _start_mpi_operator,
    "trainer": partial(_start_trainer, "trainer", "job-controllers"),
    "trainer-2.3": partial(_start_trainer, "trainer-2.3", "trainer-2.3"),
    "training-operator": _start_training_operator,
}
