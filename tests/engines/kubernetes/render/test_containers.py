"""Logs of real containers and commands in them, by real kubelets; also while the API server is away."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE, wait_until
from tests.engines.kubernetes.real import access_of, config_map

from echelon.engines.kubernetes.client.api import Api, Gone, NotThere, Object
from echelon.engines.kubernetes.client.execute import Exec
from echelon.errors import Refused, Unreachable

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MEGABYTE = 1 << 20


@pytest.fixture
def api(namespace: Kubectl) -> Iterator[Api]:
    with Api(access_of(namespace)) as api:
        yield api


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


# Logs


@pytest.mark.core
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
    thread.join(PATIENCE)
    assert not thread.is_alive()


# Commands


def collect(running: Exec) -> tuple[bytes, bytes, int | None]:
    output = {1: bytearray(), 2: bytearray()}
    while (piece := running.read(timeout=2 * PATIENCE)) is not None:
        output[piece[0]] += piece[1]
    return bytes(output[1]), bytes(output[2]), running.exit_code


@pytest.mark.core
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
        assert running.read(timeout=PATIENCE) == (1, b"hello")
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
    from echelon.engines.kubernetes.client.execute import RECEIVE, UNREAD

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
    reader.join(PATIENCE)
    assert not reader.is_alive()
    running.close()
    assert running.read() is None


# The API server away


def test_an_api_server_that_goes_away_and_comes_back(
    api_outage: tuple[Callable[[], None], Callable[[], None]],
    namespace: Kubectl,
    image: Callable[[str], str],
) -> None:
    away, back = api_outage
    api = Api(access_of(namespace), patience=120)
    start(api, "sleeper", image("python"), "import time; time.sleep(3600)")
    watch = api.watch("ConfigMap", dict, version=api.list("ConfigMap").version, timeout=300)
    made = api.create(config_map("one"))
    _, _, seen = next(watch)
    assert seen is not None
    assert seen["metadata"]["uid"] == made["metadata"]["uid"]
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
    asker.join(2 * PATIENCE)
    watcher.join(2 * PATIENCE)
    assert found[0]["metadata"]["uid"] == made["metadata"]["uid"]
    assert [type(error) for error in ended] in ([Unreachable], [])  # cut, or ended in good order
    assert not watcher.is_alive()
    # An API server that has just started remembers nothing of what was before.
    with pytest.raises(Gone):
        list(api.watch("ConfigMap", dict, version="1", timeout=30))
