"""The API client against a real API server, real kubelets and real containers."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from tests.conftest import wait_until

from echelon.engines.kubernetes.access import Access
from echelon.engines.kubernetes.api import ALL, AlreadyThere, Api, Conflict, Exec, Gone, NotThere, Object
from echelon.engines.kubernetes.kubeconfig import load_access
from echelon.errors import Denied, Refused, Unreachable

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MEGABYTE = 1 << 20


def access_of(kubectl: Kubectl) -> Access:
    return load_access(namespace=kubectl.namespace, environment={"KUBECONFIG": str(kubectl.kubeconfig)})


@pytest.fixture
def api(namespace: Kubectl) -> Iterator[Api]:
    with Api(access_of(namespace)) as api:
        yield api


def config_map(name: str, **data: str) -> Object:
    about = {"name": name, "labels": {"test": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


def pod(name: str, image: str, script: str) -> Object:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-u", "-c", script],
    }
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def start(api: Api, name: str, image: str, script: str) -> None:
    api.create(pod(name, image, script))
    wait_until(
        lambda: api.get("Pod", name)["status"]["phase"] not in ("Pending",), f"pod {name} to start", 120
    )


@pytest.fixture
def sleeper(api: Api, image: Callable[[str], str]) -> str:
    """A pod that does nothing, for commands."""
    start(api, "sleeper", image("python"), "import time; time.sleep(3600)")
    return "sleeper"


# Objects


def test_an_object_from_its_making_to_its_end(api: Api) -> None:
    assert api.find("ConfigMap", "one") is None
    made = api.create(config_map("one", a="1"))
    assert made["metadata"]["namespace"] == api.namespace
    assert api.get("ConfigMap", "one")["data"] == {"a": "1"}
    with pytest.raises(AlreadyThere):
        api.create(config_map("one"))
    api.delete("ConfigMap", "one", uid="another-uid")
    assert api.find("ConfigMap", "one") is not None
    api.delete("ConfigMap", "one", uid=made["metadata"]["uid"])
    api.delete("ConfigMap", "one")
    with pytest.raises(NotThere):
        api.get("ConfigMap", "one")


def test_a_dry_run_makes_nothing(api: Api) -> None:
    assert api.create(config_map("dry"), dry_run=True)["metadata"]["uid"]
    assert api.find("ConfigMap", "dry") is None


def test_changes(api: Api) -> None:
    made = api.create(config_map("one", a="1", b="2"))
    assert api.patch("ConfigMap", "one", {"data": {"a": None, "c": "3"}})["data"] == {"b": "2", "c": "3"}
    version = made["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        api.patch("ConfigMap", "one", {"metadata": {"resourceVersion": version}, "data": {"d": "4"}})
    api.patch("ConfigMap", "one", [{"op": "test", "path": "/data/b", "value": "2"}], how="json")
    with pytest.raises(Refused):
        api.patch("ConfigMap", "one", [{"op": "test", "path": "/data/b", "value": "no"}], how="json")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"b": "mine"}}
    assert api.patch("ConfigMap", "one", applied, how="apply")["data"]["b"] == "mine"
    assert api.patch("ConfigMap", "one", {"data": {"e": "5"}}, how="strategic")["data"]["e"] == "5"
    with pytest.raises(NotThere):
        api.patch("ConfigMap", "other", {})


def test_lists_of_several_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.api.PAGE", 3)
    for number in range(10):
        api.create(config_map(f"c{number}"))
    api.create({**config_map("other"), "metadata": {"name": "other"}})
    listing = api.list("ConfigMap", selector="test=yes")
    assert [item["metadata"]["name"] for item in listing.items] == [f"c{number}" for number in range(10)]
    assert {item["kind"] for item in listing.items} == {"ConfigMap"}
    assert int(listing.version) > 0
    assert len(api.list("ConfigMap", fields="metadata.name=c3").items) == 1
    assert len(api.list("ConfigMap", namespace=ALL, selector="test=yes").items) >= 10


def test_what_the_server_does_not_take(api: Api) -> None:
    with pytest.raises(Refused, match="Invalid value"):
        api.create(config_map("Not_A_Name"))
    with pytest.raises(Refused) as caught:
        api.create(config_map("huge", a="x" * 4 * MEGABYTE))
    assert "too long" in caught.value.message or "larger than" in caught.value.message
    with pytest.raises(NotThere) as missing:
        api.create({**config_map("one"), "metadata": {"name": "one", "namespace": "no-such-namespace"}})
    assert "kubectl create namespace no-such-namespace" in missing.value.hint


def test_a_quota_is_a_refusal_and_not_a_missing_right(api: Api) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    api.create(quota | {"spec": {"hard": {"count/secrets": "0"}}})
    wait_until(lambda: api.get("ResourceQuota", "none").get("status", {}).get("hard"), "the quota to count")
    with pytest.raises(Refused, match="exceeded quota") as caught:
        api.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
    assert "resourcequota" in caught.value.hint


def test_kinds_that_are_not_in_the_table(api: Api) -> None:
    flows = api.list("flowschemas.v1.flowcontrol.apiserver.k8s.io")  # cluster-wide, which we were not told
    assert flows.items
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r"},
        "rules": [],
    }
    api.create(role)
    assert api.get("roles.v1.rbac.authorization.k8s.io", "r")["kind"] == "Role"
    with pytest.raises(NotThere):
        api.list("gadgets.v1.things.example")


def test_every_kind_of_the_table_is_served(api: Api) -> None:
    from echelon.engines.kubernetes.kinds import KINDS

    for kind in KINDS:
        if kind != "SelfSubjectAccessReview":
            api.list(kind, namespace=ALL)


def test_other_paths(api: Api) -> None:
    assert api.raw("/version")["major"] == "1"


# Rights


def test_somebody_with_few_rights(user: Callable[..., Kubectl], namespace: Kubectl, api: Api) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    theirs = Api(access_of(user("ann", rules)))
    assert theirs.may("list", "ConfigMap")
    assert not theirs.may("create", "ConfigMap")
    assert not theirs.may("create", "Pod", subresource="exec")
    assert not theirs.may("list", "ConfigMap", namespace=ALL)
    assert api.may("create", "Pod", subresource="exec")
    assert theirs.list("ConfigMap").items
    with pytest.raises(Denied) as caught:
        theirs.create(config_map("one"))
    who = f"system:serviceaccount:{namespace.namespace}:ann"
    assert (
        caught.value.message
        == f"you (user {who}) may not create configmaps in namespace {namespace.namespace}"
    )
    for verb, deed in (
        ("delete", lambda: theirs.delete("ConfigMap", "one")),
        ("list", lambda: theirs.list("Node")),
    ):
        with pytest.raises(Denied, match=f"may not {verb}"):
            deed()
    with pytest.raises(Denied, match="may not watch pods"):
        list(theirs.watch("Pod", version="0", timeout=5))
    with pytest.raises(Denied, match="may not get pods/log"):
        list(theirs.logs("p", container="c"))
    with pytest.raises(Denied, match="pods/exec"):
        theirs.exec("p", ["true"], container="c")


def test_what_an_administrator_is_told_to_type_helps(user: Callable[..., Kubectl], cluster: Target) -> None:
    theirs = Api(access_of(user("bob", [])))
    with pytest.raises(Denied) as caught:
        theirs.create(config_map("one"))
    for command in caught.value.hint.partition(": ")[2].split(" && "):
        cluster.kubectl(*command.split()[1:])
    wait_until(lambda: theirs.may("create", "ConfigMap"), "the right to be known")
    theirs.create(config_map("one"))


def test_a_token_that_nobody_knows(namespace: Kubectl, api: Api) -> None:
    from dataclasses import replace

    from echelon.engines.kubernetes.access import Login

    with pytest.raises(Denied, match="does not accept you"):
        Api(replace(api.access, login=Login(token="nonsense"))).list("Pod")


# Watching


def test_a_watch_sees_what_happens(api: Api) -> None:
    version = api.list("ConfigMap").version
    with api.watch("ConfigMap", selector="test=yes", version=version, timeout=60) as watch:
        api.create(config_map("one"))
        assert next(watch)[0] == "ADDED"
        api.patch("ConfigMap", "one", {"data": {"a": "1"}})
        kind, changed = next(watch)
        assert (kind, changed["data"]) == ("MODIFIED", {"a": "1"})
        api.delete("ConfigMap", "one")
        assert next(watch)[0] == "DELETED"


def test_a_watch_ends_at_its_time(api: Api) -> None:
    version = api.list("ConfigMap").version
    assert [kind for kind, _ in api.watch("ConfigMap", version=version, timeout=1)] in ([], ["BOOKMARK"])


# Logs


def test_logs_are_followed_to_their_end(api: Api, image: Callable[[str], str]) -> None:
    script = "import time\nfor n in range(5):\n    print('line', n, flush=True)\n    time.sleep(0.3)"
    start(api, "talker", image("python"), script)
    text = b"".join(api.logs("talker", container="main", follow=True))
    assert text.splitlines() == [b"line %d" % number for number in range(5)]
    assert b"".join(api.logs("talker", container="main", tail=2)) == b"line 3\nline 4\n"
    with pytest.raises(Refused):
        list(api.logs("talker", container="no-such-container"))
    with pytest.raises(NotThere):
        list(api.logs("no-such-pod", container="main"))


def test_a_silent_container_can_be_left(api: Api, sleeper: str) -> None:
    logs = api.logs(sleeper, container="main", follow=True)
    thread = threading.Thread(target=lambda: list(logs))
    thread.start()
    time.sleep(0.5)  # so that it really waits
    logs.close()
    thread.join(30)
    assert not thread.is_alive()


# Commands


def collect(running: Exec) -> tuple[bytes, bytes, int | None]:
    output = {1: bytearray(), 2: bytearray()}
    while (piece := running.read(timeout=120)) is not None:
        output[piece[0]] += piece[1]
    return bytes(output[1]), bytes(output[2]), running.exit_code


def test_a_command_and_its_exit_code(api: Api, sleeper: str) -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    with api.exec(sleeper, ["python3", "-c", script], container="main") as running:
        assert collect(running) == (b"out\n", b"err\n", 7)
    with api.exec(sleeper, ["true"], container="main") as running:
        assert collect(running) == (b"", b"", 0)
    words = ["a b", "", "'\"$HOME;&&", "ü\n"]
    with api.exec(
        sleeper, ["python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words], container="main"
    ) as it:
        assert collect(it)[0].decode().strip() == ascii(words)


def test_input_and_its_end(api: Api, sleeper: str) -> None:
    with api.exec(sleeper, ["cat"], container="main", stdin=True) as running:
        running.write(b"hello")
        assert running.read(timeout=60) == (1, b"hello")
        with pytest.raises(TimeoutError):
            running.read(timeout=0.2)
        running.close_stdin()
        assert collect(running) == (b"", b"", 0)
        with pytest.raises(BrokenPipeError):
            running.write(b"more")


def test_much_goes_both_ways_unharmed(api: Api, sleeper: str) -> None:
    data = os.urandom(MEGABYTE) * 40
    with api.exec(sleeper, ["cat"], container="main", stdin=True) as running:

        def feed() -> None:
            for begin in range(0, len(data), 3_000_001):
                running.write(data[begin : begin + 3_000_001])
            running.close_stdin()

        feeder = threading.Thread(target=feed)
        feeder.start()
        output, errors, code = collect(running)
        feeder.join()
    assert (len(output), errors, code) == (len(data), b"", 0)
    assert hashlib.sha256(output).digest() == hashlib.sha256(data).digest()


def test_a_slow_reader_holds_the_command_back(api: Api, sleeper: str) -> None:
    from echelon.engines.kubernetes.execute import RECEIVE, UNREAD

    script = "import sys; sys.stdout.buffer.write(bytes(50_000_000))"
    with api.exec(sleeper, ["python3", "-c", script], container="main") as running:
        wait_until(lambda: running._amount_unread >= UNREAD, "what is unread to grow")
        time.sleep(0.5)
        assert running._amount_unread <= UNREAD + 2 * RECEIVE
        assert len(collect(running)[0]) == 50_000_000


def test_a_terminal(api: Api, sleeper: str) -> None:
    script = "import os, sys; input(); print(sys.stdin.isatty(), tuple(os.get_terminal_size()))"
    with api.exec(sleeper, ["python3", "-c", script], container="main", stdin=True, tty=True) as running:
        running.resize(91, 17)
        running.write(b"\n")
        output, _, code = collect(running)
    assert b"True (91, 17)" in output
    assert code == 0


def test_commands_that_cannot_be_run(api: Api, sleeper: str) -> None:
    for name, command, container in (
        (sleeper, ["no-such-program"], "main"),
        (sleeper, ["true"], "no-such-container"),
        ("no-such-pod", ["true"], "main"),
    ):
        with pytest.raises(Refused) as caught, api.exec(name, command, container=container) as running:
            collect(running)
        assert "no-such-" in str(caught.value)


def test_a_command_whose_pod_goes_away(api: Api, sleeper: str) -> None:
    with api.exec(sleeper, ["sleep", "600"], container="main") as running:
        api.delete("Pod", sleeper, grace=0)
        try:
            _, _, code = collect(running)
        except (Unreachable, Refused):
            pass
        else:
            assert code == 137


def test_leaving_a_command(api: Api, sleeper: str) -> None:
    running = api.exec(sleeper, ["cat"], container="main", stdin=True)
    reader = threading.Thread(target=running.read)
    reader.start()
    running.close()
    reader.join(30)
    assert not reader.is_alive()
    running.close()
    assert running.read() is None


# The API server away


@pytest.mark.soak  # it has the cluster to itself
def test_an_api_server_that_goes_away_and_comes_back(
    api_outage: tuple[Callable[[], None], Callable[[], None]],
    namespace: Kubectl,
    image: Callable[[str], str],
) -> None:
    away, back = api_outage
    api = Api(access_of(namespace), patience=120)
    start(api, "sleeper", image("python"), "import time; time.sleep(3600)")
    watch = api.watch("ConfigMap", version=api.list("ConfigMap").version, timeout=300)
    made = api.create(config_map("one"))
    assert next(watch)[1]["metadata"]["uid"] == made["metadata"]["uid"]
    running = api.exec("sleeper", ["sleep", "600"], container="main")
    ended: list[BaseException] = []

    def follow() -> None:
        try:
            list(watch)
        except Unreachable as error:
            ended.append(error)

    watcher = threading.Thread(target=follow)
    watcher.start()
    away()
    with pytest.raises(Unreachable, match=r"refuses connections|no answer in time"):
        Api(api.access, patience=0.5).get("ConfigMap", "one")
    with pytest.raises(Unreachable):
        collect(running)
    running.close()
    found: list[Object] = []
    asker = threading.Thread(target=lambda: found.append(api.get("ConfigMap", "one")))
    asker.start()
    back()
    asker.join(120)
    watcher.join(120)
    assert found[0]["metadata"]["uid"] == made["metadata"]["uid"]
    assert [type(error) for error in ended] in ([Unreachable], [])  # cut, or ended in good order
    assert not watcher.is_alive()
    # An API server that has just started remembers nothing of what was before.
    with pytest.raises(Gone):
        list(api.watch("ConfigMap", version="1", timeout=30))


# kubectl, the oracle


def test_kubeconfigs_mean_what_they_mean_to_kubectl(cluster: Target, tmp_path: Path) -> None:
    """Several files with overlapping entries: the same server, user and namespace for every context."""
    import itertools
    import json
    import subprocess

    import yaml

    def document(names: str, current: str, place: str) -> object:
        return {
            "clusters": [{"name": n, "cluster": {"server": f"https://{n}.{place}"}} for n in names],
            "users": [{"name": n, "user": {"token": f"{n} of {place}"}} for n in names],
            "contexts": [
                {
                    "name": n,
                    "context": {"cluster": n, "user": n} | ({"namespace": place} if n in "bd" else {}),
                }
                for n in names
            ],
            "current-context": current,
        }

    for place, names, current in (("one", "ab", ""), ("two", "bc", "c"), ("three", "acd", "a")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "config").write_text(yaml.safe_dump(document(names, current, place)))
    for order in itertools.permutations(["one", "two", "three", "gone"], 3):
        variables = {"KUBECONFIG": ":".join(str(tmp_path / place / "config") for place in order)}
        words = [*cluster.kubectl.command()[:2], "config", "view", "--minify", "--raw", "-o", "json"]
        done = subprocess.run(words, env=os.environ | variables, capture_output=True, text=True, check=True)
        theirs = json.loads(done.stdout)
        ours = load_access(environment=variables)
        context = theirs["contexts"][0]
        assert ours.context == theirs["current-context"] == context["name"]
        assert ours.namespace == context["context"].get("namespace", "default")
        assert ours.server == theirs["clusters"][0]["cluster"]["server"]
        assert ours.login.token == theirs["users"][0]["user"]["token"]
