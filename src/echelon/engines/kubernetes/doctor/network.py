"""Two short pods on two nodes that exchange data as ranks do: with PyTorch's Gloo where the image has it,
else over plain sockets; from the interface that Gloo would choose.

The second pod is made when the first has an address, so that no Service is needed."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echelon.engines.base import current_user
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.doctor.probe import has_ended, not_started, patience, probe_object
from echelon.engines.kubernetes.fields import json_object, one_line
from echelon.engines.kubernetes.one_pod import OnePod, metadata
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.workers import is_running
from echelon.errors import EchelonError, Refused, Unavailable, Unreachable
from echelon.model.engine.finding import Finding
from echelon.model.resources import format_memory

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

Object = dict[str, Any]
_PATIENCE = 300.0  # seconds for a pod, which may pull the image
_PORT = 29_500
_SIZE = 8 << 20  # bytes that are exchanged
# Its arguments: the rank, the first pod's address, a port. Only the standard library is there for sure.
SCRIPT = f"""
import fcntl, json, os, socket, struct, sys, time
rank, leader, port, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), {_SIZE}
def address_of(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            found = fcntl.ioctl(asked.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(found[20:24])
cards = {{name: address_of(name) for _, name in socket.if_nameindex()}}
cards = {{name: address for name, address in cards.items() if address}}
try:
    own = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)[0][4][0]
except OSError:
    own = "127.0.0.1"
gloo = next((name for name, address in cards.items() if address == own), "")
order = lambda name: (not name.startswith("ib"), name.startswith(("docker", "lo")), name == "lo")
nccl = min(cards, key=order) if cards else ""
said = {{"gloo": gloo, "address": own, "nccl": nccl, "cards": cards, "torch": None, "error": None}}
def exchange():
    if rank == 0:
        with socket.create_server((own, port)) as server:
            server.settimeout(240)
            other, _ = server.accept()
    else:
        deadline = time.time() + 60
        while True:
            try:
                other = socket.create_connection((leader, port), 5, source_address=(own, 0))
                break
            except OSError:
                if time.time() > deadline:
                    raise
                time.sleep(0.5)
    other.settimeout(60)
    began = time.time()
    for sends in ((True, False) if rank == 0 else (False, True)):
        if sends:
            other.sendall(bytes(size))
        else:
            left = size
            while left:
                piece = other.recv(min(left, 1 << 16))
                if not piece:
                    raise OSError("the other pod has closed the connection")
                left -= len(piece)
    return time.time() - began
def reduce(torch, dist):
    import datetime
    patience = datetime.timedelta(seconds=240 if rank == 0 else 60)
    dist.init_process_group("gloo", f"tcp://{{leader}}:{{port}}", timeout=patience, rank=rank, world_size=2)
    values = torch.ones(size // 4)
    dist.all_reduce(values)
    began = time.time()
    dist.all_reduce(values)
    took = time.time() - began
    dist.destroy_process_group()
    if float(values[0]) != 4.0:
        raise OSError("the sum is wrong")
    return took
try:
    try:
        import torch, torch.distributed as dist
    except ImportError:
        said["seconds"] = exchange()
    else:
        said["torch"] = torch.__version__
        said["seconds"] = reduce(torch, dist)
except Exception as error:
    said["error"] = "%s: %s" % (type(error).__name__, error)
print(json.dumps(said))
"""


def probe_network(api: Api, image: str) -> Iterator[Finding]:
    """Let two pods exchange data and report how. Nothing stays behind."""
    pair = f"echelon-doctor-{secrets.token_hex(4)}"
    pods = [OnePod(api, f"the {which} pod", patience(_PATIENCE)) for which in ("first", "second")]
    try:
        yield from _probe(api, image, pair, *pods)
    except Unreachable:
        raise
    except EchelonError as error:
        yield Finding(level="degraded", what="network", found=error.message, fix=f"-n 2: {error.hint}")
    finally:
        for pod in pods:
            with contextlib.suppress(EchelonError):  # its time to live removes it then
                pod.remove()


def _probe(api: Api, image: str, pair: str, first: OnePod, second: OnePod) -> Iterator[Finding]:
    try:
        leader = first.make(lambda level: _job(pair, image, 0, f"$({names.ENV_POD_IP})", level), _has_address)
    except (Refused, Unavailable) as error:
        yield not_started(error)
        return
    try:
        other = second.make(lambda level: _job(pair, image, 1, leader.status.pod_ip, level), has_ended)
    except Refused as error:
        yield not_started(error)
        return
    except Unavailable as error:
        yield Finding(
            level="degraded",
            what="network",
            found="no second pod has started on another node, so nothing was sent between two",
            fix=f"runs on several nodes: {error.message}",
        )
        return
    ended = [first.wait(has_ended), other]
    said = [
        json_object(b"".join(api.logs(pod.metadata.name, container=names.CONTAINER)).decode())
        for pod in ended
    ]
    yield judge(said, [pod.spec.node_name for pod in ended])


def judge(said: Sequence[Mapping[str, Any]], nodes: Sequence[str]) -> Finding:
    """The line for what both pods reported, the first pod's before the second's."""
    where = f"pods on {nodes[0]} and {nodes[1]}"
    errors = [one_line(each.get("error") or "") for each in said]
    cards = [str(each.get("gloo") or "no interface") for each in said]
    nccl = str(said[1].get("nccl") or "")
    if any(errors) or not all(isinstance(each.get("seconds"), float) for each in said):
        reason = next(filter(None, errors[::-1]), "they left no report")
        fix = "a NetworkPolicy or a firewall between the nodes may forbid it"
        if "lo" in cards:
            fix = f"Gloo chooses the loopback; --env GLOO_SOCKET_IFNAME={nccl or 'eth0'}"
        return Finding(
            level="missing",
            what="network",
            found=f"{where} do not reach each other from {' and '.join(dict.fromkeys(cards))}: {reason}",
            fix=f"runs with several workers: {fix}",
        )
    version = said[1].get("torch")
    how = f"all-reduce with Gloo of PyTorch {one_line(version)}" if version else "plain sockets: no PyTorch"
    amount = f"{format_memory(_SIZE)} in {max(float(each['seconds']) for each in said):.3f} s"
    found = f"{where} exchange {amount} ({how}; Gloo takes {cards[1]}, NCCL {nccl})"
    if nodes[0] == nodes[1]:
        return Finding(level="degraded", what="network", found=found, fix="several nodes: both were on one")
    return Finding(level="ok", what="network", found=found)


def _has_address(pod: Pod) -> bool:
    return has_ended(pod) or (is_running(pod) and bool(pod.status.pod_ip))


def _job(pair: str, image: str, rank: int, leader: str, level: str) -> Object:
    about = metadata(pair, names.DOCTOR, current_user())
    both = {"matchLabels": {"app.kubernetes.io/instance": pair}}
    apart = {"labelSelector": both, "topologyKey": "kubernetes.io/hostname"}
    own_address = {"name": names.ENV_POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return probe_object(
        {**about, "name": f"{pair}-{rank}"},
        image,
        ["python3", "-c", SCRIPT, str(rank), leader, str(_PORT)],
        _PATIENCE,
        level,
        memory="2Gi",
        env=[own_address],
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
    )
