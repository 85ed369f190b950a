"""The cluster as a whole: up, down, status, reset, nodes added and removed.

One cluster per machine. The state folder records who started it and from which checkout, so that a second
checkout is refused with a message; `down` also ends what a crash left behind, by the same folder.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from echelon.errors import StateTrouble, Unavailable
from testbed import (
    cgroups,
    controlplane,
    debian,
    fakenodes,
    gpus,
    images,
    kernel,
    network,
    node,
    processes,
    programs,
    storage,
    versions,
)
from testbed.certificates import make_authority, write_kubeconfig
from testbed.kubectl import Kubectl, Refused
from testbed.locking import held
from testbed.mounts import unmount_below
from testbed.paths import AUDIT_LOG, CHECKOUT, CLUSTER_FILE, KUBECONFIG, LOCK, STATE, write
from testbed.progress import say
from testbed.trash import discard

FIRST_NODES = ("node-a", "node-b")
# All kubelets of a machine clear and use one folder for device plugins, wherever their own folder is: one
# that starts at the same time as another may end over it.
KUBELET_STARTS = 3
# On every namespace that a test makes.
OF_TESTS = "testbed/test"
BASIC_IMAGES = (images.SANDBOX, "python")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Who started the cluster of this machine, and how far the start came."""

    checkout: str
    since: str
    complete: bool
    for_tests: bool = False  # a test run started it: the last one that uses it ends it


def claim() -> Claim | None:
    """The claim on this machine's cluster, if there is one."""
    try:
        return Claim(**json.loads(CLUSTER_FILE.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def up(*, for_tests: bool = False) -> None:
    """Build what is missing and start the cluster, unless this checkout's cluster runs already. Whom it is
    for is claimed before anything of it runs.
    """
    debian.install_packages()
    for source in (*programs.ALWAYS, versions.current()):
        programs.folder(source)
    for image in BASIC_IMAGES:
        images.build(image)
    with held(LOCK):
        present = claim()
        if present and present.checkout != str(CHECKOUT) and _daemons_alive():
            raise StateTrouble(
                f"a cluster runs on this machine already, started from {present.checkout} at {present.since}",
                hint=f"use it with: export KUBECONFIG={KUBECONFIG}; or end it with: python -m testbed down",
            )
        if present and present.complete and controlplane.is_ready():
            versions.check_running()
            return
        _end()
        _begin(for_tests=for_tests)


def restart() -> None:
    """End the cluster and start it again, for whom it was."""
    present = claim()
    down()
    up(for_tests=present is not None and present.for_tests)


def trouble(patience: float = 30.0) -> str:
    """What is wrong with the cluster itself; nothing if it is well within `patience` seconds."""
    deadline = time.monotonic() + patience
    while (found := _trouble_now()) and time.monotonic() < deadline:
        time.sleep(1)
    return found


def down() -> None:
    """End exactly what was made: processes, pods, mounts, links, cgroups, and the state folder."""
    with held(LOCK):
        _end()


def reset() -> None:
    """Restore the state after `up`: the first nodes only, no GPUs, no namespaces or controllers of tests."""
    _must_run()
    processes.stop([record.name for record in processes.recorded() if record.name.startswith("controller-")])
    start_api()
    kubectl = Kubectl(kubeconfig=KUBECONFIG)
    fakenodes.remove()
    kept = {"default", "kube-system", "kube-public", "kube-node-lease"}
    namespaces = [item["metadata"]["name"] for item in kubectl.items("namespaces")]
    if doomed := [name for name in namespaces if name not in kept]:
        kubectl("delete", "namespace", *doomed)
    for name in node.names():
        if name not in FIRST_NODES:
            remove_node(name)
        elif not _node_alive(name):
            remove_node(name)
            add_node(name)
        else:
            gpus.take(kubectl, name)


def sweep() -> None:
    """Remove what killed tests have left in a cluster that its user keeps: their namespaces, fake nodes, and
    first nodes that are ended. What the user has put there stays. One that does not answer is left to `up`.
    """
    if not controlplane.is_ready():
        return
    kubectl = Kubectl(kubeconfig=KUBECONFIG)
    fakenodes.remove()
    if left := [item["metadata"]["name"] for item in kubectl.items("namespaces", "-l", OF_TESTS)]:
        kubectl("delete", "namespace", *left)
    for name in FIRST_NODES:
        if not _node_alive(name):
            remove_node(name)
            add_node(name)


def add_node(name: str = "") -> str:
    """Add a node and wait until it is Ready; returns its name."""
    _must_run()
    letters = (f"node-{chr(code)}" for code in range(ord("a"), ord("z") + 1))
    name = name or next(letter for letter in letters if letter not in node.names())
    _prepare_node(name)
    node.start_kubelet(name)
    _wait_ready(name)
    return name


def kill_node(name: str) -> None:
    """Kill a node as a power cut would."""
    if name not in node.names():
        raise Unavailable(f"no node is called {name!r}", hint=f"there are: {', '.join(node.names())}")
    node.kill(name)


def remove_node(name: str) -> None:
    """Remove a node from the machine and from the API."""
    node.remove(name)
    Kubectl(kubeconfig=KUBECONFIG)("delete", "node", name, "--ignore-not-found")


def stop_api() -> None:
    """Stop the API server; everything else keeps running, as in a real outage."""
    processes.stop(["kube-apiserver"], now=True, forget=False)


def start_api() -> None:
    """Start the API server again, with the same settings."""
    processes.restart("kube-apiserver")
    controlplane.wait_ready()


def load_image(name: str) -> str:
    """Import an image into every living node; returns its name for pods."""
    images.build(name)
    alive = [each for each in node.names() if _node_alive(each)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: images.load(name, each), alive))
    return images.reference(name)


def status() -> dict[str, object]:
    """The claim, the daemons, and the nodes as the API reports them."""
    present = claim()
    answer: dict[str, object] = {"cluster": asdict(present) if present else None}
    if present:
        answer["kubeconfig"] = str(KUBECONFIG)
        answer["daemons"] = {record.name: processes.is_alive(record) for record in processes.recorded()}
        answer["api_ready"] = controlplane.is_ready()
        if answer["api_ready"]:
            answer["nodes"] = _nodes_ready()
        answer["audit_log"] = str(AUDIT_LOG)
    return answer


def _begin(*, for_tests: bool) -> None:
    began = time.monotonic()
    STATE.mkdir(parents=True, exist_ok=True)
    mine = Claim(
        checkout=str(CHECKOUT),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        complete=False,
        for_tests=for_tests,
    )
    write(CLUSTER_FILE, json.dumps(asdict(mine)))
    versions.choose()
    kernel.prepare()
    network.make_bridge()
    make_authority()
    write_kubeconfig(KUBECONFIG, "admin", ["system:masters"])
    # Importing images needs the disk, starting the API server the processor: they run in parallel.
    with ThreadPoolExecutor(max_workers=len(FIRST_NODES) + 1) as pool:
        nodes = [pool.submit(_prepare_node, name) for name in FIRST_NODES]
        controlplane.start()
        for prepared in nodes:
            prepared.result()
    for name in FIRST_NODES:
        node.start_kubelet(name)
    storage.start(Kubectl(kubeconfig=KUBECONFIG))
    for name in FIRST_NODES:
        _wait_ready(name)
    write(CLUSTER_FILE, json.dumps(asdict(mine) | {"complete": True}))
    say(f"testbed: cluster up in {time.monotonic() - began:.0f} s")


def _end() -> None:
    if not STATE.exists():
        return
    # Nothing here outlives the cluster, so no process needs time to shut down cleanly.
    processes.stop([record.name for record in processes.recorded()], now=True)
    for name in node.names():
        node.remove(name)
    processes.sweep()
    cgroups.kill()
    unmount_below(STATE)
    cgroups.remove()
    network.remove()
    kernel.restore()
    discard(STATE)


def _prepare_node(name: str) -> None:
    node.start(name)
    for image in BASIC_IMAGES:
        images.load(image, name)


def _wait_ready(name: str) -> None:
    def ready() -> bool:
        with suppress(Refused):
            return _nodes_ready().get(name) == "True"
        return False

    daemon = f"kubelet-{name}"
    for left in reversed(range(KUBELET_STARTS)):
        try:
            controlplane.wait_for(ready, daemon, f"{name} to be Ready", 90)
        except Unavailable:
            record = processes.read(daemon)
            if not left or record is None or processes.is_alive(record):
                raise
            say(f"testbed: {daemon} ended while it started; it is started again")
            processes.restart(daemon)
        else:
            return


def _nodes_ready() -> dict[str, str]:
    found = {}
    for item in Kubectl(kubeconfig=KUBECONFIG).items("nodes"):
        conditions = {
            entry["type"]: entry["status"] for entry in item.get("status", {}).get("conditions", [])
        }
        found[item["metadata"]["name"]] = conditions.get("Ready", "Unknown")
    return found


def _trouble_now() -> str:
    if not controlplane.is_ready():
        return "the API server does not answer"
    try:
        ready = _nodes_ready()
    except Refused as error:
        return error.message
    unwell = [name for name in FIRST_NODES if ready.get(name) != "True"]
    return f"{', '.join(unwell)} not Ready" if unwell else ""


def _node_alive(name: str) -> bool:
    records = [processes.read(f"containerd-{name}"), processes.read(f"kubelet-{name}")]
    return all(record is not None and processes.is_alive(record) for record in records)


def _daemons_alive() -> bool:
    return any(processes.is_alive(record) for record in processes.recorded())


def _must_run() -> None:
    if not claim():
        raise Unavailable("no cluster runs on this machine", hint="start one with: python -m testbed up")
