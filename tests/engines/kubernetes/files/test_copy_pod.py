"""Copies to and from volumes of a real cluster, through a real API server that may go away."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl, Object
from testbed.patience import FACTOR
from tests.agent.trees import tree
from tests.engines.kubernetes.copies import TRANSFER, fill, left
from tests.engines.kubernetes.ordinary import claim
from tests.testbed import manifests

from echelon.bundle.zipapp import agent_archive
from echelon.engines.kubernetes import names, one_pod
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.kubeconfig import load_access
from echelon.engines.kubernetes.files import copy_pod
from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume
from echelon.engines.kubernetes.files.reconnect import Opener
from echelon.engines.kubernetes.files.transfer import Progress, fetch_tree, pod_opener, send_tree
from echelon.engines.kubernetes.files.volumes import read_volume
from echelon.errors import InvalidJob, Refused, StateTrouble, Unavailable
from echelon.model.pods.pod import PodOptions

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def api(namespace: Kubectl) -> Iterator[Api]:
    environment = {"KUBECONFIG": str(namespace.kubeconfig)}
    with Api(load_access(namespace=namespace.namespace, environment=environment)) as made:
        yield made


@pytest.fixture
def options(image: Callable[[str], str]) -> PodOptions:
    return PodOptions(image=image("python"))


@pytest.fixture
def data(namespace: Kubectl) -> str:
    namespace.create(claim("data"))
    return "data"


def reach(
    api: Api,
    name: str,
    options: PodOptions,
    *,
    writes: bool = True,
    notice: Callable[[str], object] = lambda _: None,
) -> AbstractContextManager[Opener]:
    return reach_volume(api, read_volume(api, name), options, owner="ann", writes=writes, notice=notice)


def wait_ready(namespace: Kubectl, name: str) -> None:
    namespace.wait_for(
        lambda: manifests.conditions(namespace.get("pod", name)).get("Ready") == "True", f"pod {name}"
    )


@pytest.mark.core
def test_there_and_back_and_nothing_left(
    namespace: Kubectl, api: Api, data: str, options: PodOptions, tmp_path: Path
) -> None:
    source = fill(tmp_path / "source", 3_000_000)
    with reach(api, data, options) as opener:
        assert send_tree(opener, source, f"{MOUNT}/in").there == 0
        assert send_tree(opener, source, f"{MOUNT}/in").there == 2
        fetch_tree(opener, MOUNT, tmp_path / "while", path="in")
    with reach(api, data, options, writes=False) as opener:
        fetch_tree(opener, MOUNT, tmp_path / "back", path="in")
        with pytest.raises(StateTrouble, match="Read-only file system"):
            send_tree(opener, source, f"{MOUNT}/more")
    assert tree(tmp_path / "back") == tree(tmp_path / "while") == tree(source)
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")


def test_a_pod_with_the_labels_of_one_that_copies_gets_nothing(
    namespace: Kubectl,
    api: Api,
    data: str,
    options: PodOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may make one, and it may run before the pod of the Job does."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    made = copy_pod.CopyPod(claim="", options=options, owner="eve", writes=True)
    labels = copy_pod.job_of("cp-0", made, "")["spec"]["template"]["metadata"]["labels"]
    labels |= {names.JOB_NAME: "cp-0"}
    container = {"name": names.CONTAINER, "image": options.image, "command": ["sleep", "600"]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    about = {"name": "cp-0-aaaaa", "labels": labels}
    namespace.create({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    wait_ready(namespace, "cp-0-aaaaa")
    reached: list[str] = []

    def opened(api: Api, pod: str) -> Opener:
        reached.append(pod)
        return pod_opener(api, pod)

    monkeypatch.setattr(copy_pod, "pod_opener", opened)
    source = fill(tmp_path / "source", 1000)
    with reach(api, data, options) as there:
        send_tree(there, source, f"{MOUNT}/in")
    assert len(reached) == 1
    assert reached != ["cp-0-aaaaa"]


@pytest.mark.parametrize("level", ["restricted", "restricted, and nobody may know"])
def test_a_restricted_namespace(
    namespace: Kubectl,
    api: Api,
    data: str,
    options: PodOptions,
    tmp_path: Path,
    level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    namespace("label", "namespace", namespace.namespace, f"{names.SECURITY_LEVEL}=restricted")
    if level != "restricted":
        monkeypatch.setattr(one_pod, "level_of", lambda _api: None)
    source = fill(tmp_path / "source", 10_000)
    with reach(api, data, options) as opener:
        send_tree(opener, source, f"{MOUNT}/in")
        fetch_tree(opener, MOUNT, tmp_path / "back", path="in")
    assert tree(tmp_path / "back") == tree(source)
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")


@pytest.mark.parametrize("way", ["send", "fetch"])
def test_the_api_server_goes_away_in_the_middle(
    api: Api,
    data: str,
    options: PodOptions,
    tmp_path: Path,
    api_outage: tuple[Callable[[], None], Callable[[], None]],
    way: str,
) -> None:
    """300 MB arrive whole, and what had arrived before is not sent again."""
    away, back = api_outage
    size = 300_000_000
    source, target = fill(tmp_path / "source", size), tmp_path / "target"
    seen: list[Progress] = []
    outage: list[threading.Thread] = []

    def hear(now: Progress) -> None:
        seen.append(now)
        if now.done > size // 3 and not outage:

            def interrupt() -> None:
                away()
                back()

            outage.append(threading.Thread(target=interrupt))
            outage[0].start()

    with reach(api, data, options) as opener:
        send_tree(opener, source, f"{MOUNT}/in", progress=hear if way == "send" else lambda _: None)
        fetch_tree(opener, MOUNT, target, path="in", progress=hear if way == "fetch" else lambda _: None)
    outage[0].join()
    assert tree(target) == tree(source)
    troubles = [number for number, now in enumerate(seen) if now.trouble]
    assert troubles
    first_after = next(now for now in seen[troubles[-1] + 1 :] if now.done > 1_000_000)
    assert first_after.done > size // 4


def test_a_volume_that_is_full(
    namespace: Kubectl, api: Api, image: Callable[[str], str], tmp_path: Path
) -> None:
    """Eight MiB of memory play the volume: it is full for as long as nobody makes room."""
    agent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "agent"}}
    agent["binaryData"] = {names.AGENT_KEY: base64.b64encode(agent_archive()).decode()}
    mounts = [{"name": "agent", "mountPath": names.BUNDLE_DIR}, {"name": "small", "mountPath": MOUNT}]
    container: Object = {"name": names.CONTAINER, "image": image("python"), "volumeMounts": mounts}
    container["command"] = names.agent_command(None, "files", "hold", "600")
    volumes = [
        {"name": "agent", "configMap": {"name": "agent"}},
        {"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
    ]
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    namespace.create(agent, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "small"}, "spec": spec})
    wait_ready(namespace, "small")
    opener = pod_opener(api, "small")
    source = fill(tmp_path / "source", 20_000_000)
    with pytest.raises(StateTrouble, match=f"the volume is full: {MOUNT}/in/large does not fit"):
        send_tree(opener, source, f"{MOUNT}/in")
    (source / "large").write_bytes(b"smaller")
    assert send_tree(opener, source, f"{MOUNT}/in").left_out == ()
    fetch_tree(opener, MOUNT, tmp_path / "back", path="in")
    assert (tmp_path / "back" / "large").read_bytes() == b"smaller"


def test_a_hostile_volume(
    namespace: Kubectl, api: Api, data: str, options: PodOptions, tmp_path: Path
) -> None:
    """Links out, pipes and names that are no text come as far as they may, and the rest is named."""
    make = (
        "import os, sys; os.chdir(sys.argv[1]); os.symlink('/etc', 'out'); os.symlink('../..', 'up'); "
        "os.mkfifo('pipe'); os.mkdir('d'); os.symlink('../d', 'd/l'); os.symlink('d/l/../..', 'deep'); "
        "open(b'\\xff\\xfe', 'w').write('odd'); open('-rf', 'w').write('dash'); open('a\\nb', 'w').write('n')"
    )
    with reach(api, data, options) as opener:
        (pod,) = namespace.items("pods", "-l", TRANSFER)
        namespace("exec", pod["metadata"]["name"], "--", "python3", "-c", make, MOUNT)
        copied = fetch_tree(opener, MOUNT, tmp_path / "back")
    assert {each.path for each in copied.left_out} == {"out", "up", "pipe", "deep"}
    assert set(tree(tmp_path / "back")) == {"d", "d/l", "-rf", "a\nb", os.fsdecode(b"\xff\xfe")}
    assert (tmp_path / "back" / os.fsdecode(b"\xff\xfe")).read_bytes() == b"odd"


def test_a_volume_in_use_is_reached_on_its_node(
    namespace: Kubectl, api: Api, data: str, options: PodOptions, real_nodes: list[str]
) -> None:
    node = real_nodes[-1]
    mounts = [{"name": "data", "mountPath": "/data"}]
    container = {"name": "c", "image": options.image, "command": ["sleep", "600"], "volumeMounts": mounts}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": data}}]
    user: Object = {"nodeName": node, "containers": [container], "volumes": volumes}
    user["terminationGracePeriodSeconds"] = 0
    namespace("annotate", "pvc", data, f"volume.kubernetes.io/selected-node={node}")
    namespace.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user"}, "spec": user})
    wait_ready(namespace, "user")
    assert read_volume(api, data).nodes == (node,)
    with reach(api, data, options):
        (pod,) = namespace.items("pods", "-l", TRANSFER)
        assert pod["spec"]["nodeName"] == node
        assert read_volume(api, data).pods == (pod["metadata"]["name"], "user")


def test_a_volume_for_one_pod_only(namespace: Kubectl, api: Api, options: PodOptions) -> None:
    namespace.create(claim("single", accessModes=["ReadWriteOncePod"]))
    with (
        reach(api, "single", options),
        pytest.raises(Unavailable, match="one pod at a time"),
        reach(api, "single", options),
    ):
        pass


def test_an_image_that_is_none_is_given_up_and_nothing_left(namespace: Kubectl, api: Api, data: str) -> None:
    said: list[str] = []
    with (
        pytest.raises(Refused, match="image"),
        reach(api, data, PodOptions(image="UPPER/Case:1"), notice=said.append),
    ):
        pass
    assert all("worker" not in words for words in said)
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")


def test_it_ends_by_itself_when_nobody_is_left_to_remove_it(
    namespace: Kubectl, api: Api, data: str, options: PodOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough that a busy machine sees it run before it has ended.
    monkeypatch.setattr(copy_pod, "IDLE", int(10 * FACTOR))
    monkeypatch.setattr(copy_pod, "_KEPT", 1)
    monkeypatch.setattr(copy_pod, "_remove", lambda *_: None)
    with reach(api, data, options):
        assert len(left(namespace)) == 3
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")


def test_a_pod_that_has_ended_meanwhile_is_made_again(
    namespace: Kubectl, api: Api, data: str, options: PodOptions, tmp_path: Path
) -> None:
    """As after a long outage of the API server: a copy that still goes on gets another pod, once."""
    source = fill(tmp_path / "source", 10_000)
    with reach(api, data, options) as opener:
        send_tree(opener, source, f"{MOUNT}/in")
        (job,) = namespace.items("jobs", "-l", TRANSFER)
        namespace("delete", "job", job["metadata"]["name"], "--wait=true", "--cascade=foreground")
        fetch_tree(opener, MOUNT, tmp_path / "back", path="in")
        assert len(namespace.items("jobs", "-l", TRANSFER)) == 1
    assert tree(tmp_path / "back") == tree(source)
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")


def test_reaching_a_volume_that_is_not_there(api: Api) -> None:
    with pytest.raises(InvalidJob, match="'data' is not in namespace"):
        read_volume(api, "data")
