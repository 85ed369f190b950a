"""Whole responses over connections of the standard library: which addresses, and which connections are used
again.
"""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest
from tests.engines.kubernetes.stand_in import POD, Certificates, Proxy, StandIn, cuts, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.http import direct, stream
from echelon.engines.kubernetes.client.http.direct import is_plain
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import Unreachable


@pytest.mark.parametrize(
    ("server", "plain"),
    [
        ("https://10.0.0.1:6443", True),
        ("https://api.example.com", True),
        ("https://[fd00::1]:6443", True),
        ("http://127.0.0.1:8001/", True),
        ("https://rancher.example.com/k8s/clusters/c-1", True),
        ("https://bücher.example", False),
        ("https://user:word@api.example.com", False),
        ("https://api.example.com:0", False),
        ("https://api.example.com:99999", False),
        ("https://[fd00::zz]", False),
        ("https://api.example.com/a b", False),
        ("https://api.example.com?x=1", False),
        ("ftp://api.example.com", False),
        ("api.example.com", False),
    ],
)
def test_plain_addresses(server: str, plain: bool) -> None:
    assert is_plain(server) is plain


def test_a_connection_is_used_again(api: Api, stand_in: StandIn) -> None:
    for _ in range(3):
        assert api.get("Pod", "p") == POD
    assert len({seen.port for seen in stand_in.seen}) == 1


def test_a_connection_that_the_server_closes_is_not_used_again(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, POD, Connection="close"), says(201, POD))
    assert api.get("Pod", "p") == POD
    assert api.create(POD) == POD  # which is not sent twice, so that a dead connection would be an error
    assert len({seen.port for seen in stand_in.seen}) == 2


def test_a_connection_that_was_cut_is_not_used_again(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(cuts, says(201, POD))
    with pytest.raises(Unreachable, match="cut"):
        api.create(POD)
    assert api.create(POD) == POD


def test_a_packed_response(access: Access, stand_in: StandIn) -> None:
    packed = gzip.compress(json.dumps(POD).encode())
    stand_in.answer_with(says(200, packed, Content_Encoding="gzip"))
    assert Api(replace(access, compress=True), "team").get("Pod", "p") == POD
    assert stand_in.seen[0].headers["accept-encoding"] == "gzip"


def test_a_server_below_a_path(access: Access, stand_in: StandIn) -> None:
    below = replace(access, server=f"{access.server}/k8s/clusters/c-1")
    assert Api(below, "team").get("Pod", "p") == POD
    assert stand_in.paths() == ["/k8s/clusters/c-1/api/v1/namespaces/team/pods/p"]
    assert stand_in.seen[0].headers["host"] == f"127.0.0.1:{stand_in.port}"


@pytest.fixture
def slow_way(stand_in: StandIn) -> Iterator[int]:
    """A port that leads to the server; every piece takes half a second, either way."""

    def pump(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                time.sleep(0.5)
                to.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as kept:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    ours = kept.enter_context(server.accept()[0])
                    theirs = kept.enter_context(socket.create_connection(("127.0.0.1", stand_in.port)))
                    for pair in ((ours, theirs), (theirs, ours)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


def test_a_server_that_is_slow_to_greet_is_not_away(
    access: Access, slow_way: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake takes as long as an answer; only the connection must be accepted soon."""
    monkeypatch.setattr(direct, "CONNECT", 0.3)
    api = Api(replace(access, server=f"https://127.0.0.1:{slow_way}"), "team")
    assert api.get("Pod", "p") == POD


def test_a_proxy_is_the_librarys_matter(access: Access, stand_in: StandIn) -> None:
    with Proxy() as proxy:
        assert Api(replace(access, proxy=f"http://{proxy.address}"), "team").get("Pod", "p") == POD
        assert len(proxy.asked) == 1


def test_a_short_command_does_without_the_library(stand_in: StandIn, certificates: Certificates) -> None:
    """The import of it took longer than all requests of a submission."""
    script = (
        "import sys; from pathlib import Path\n"
        "from echelon.engines.kubernetes.client.login.access import Access\n"
        "from echelon.engines.kubernetes.client.api import Api\n"
        "from echelon.engines.kubernetes.engine import KubernetesEngine\n"
        "authority = Path(sys.argv[2]).read_bytes()\n"
        "access = Access(server=sys.argv[1], context='', cluster='', user='', authority_data=authority)\n"
        "assert Api(access, 'team').get('Pod', 'p')\n"
        "print(*sys.modules)\n"
    )
    command = [sys.executable, "-c", script, stand_in.url, str(certificates.authority)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    named = {name.partition(".")[0] for name in found.stdout.split()}
    assert not named & {"httpx2", "httpcore2", "h11", "anyio"}


def has_no_end(handler: BaseHTTPRequestHandler) -> None:
    """Send for as long as anybody takes it."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(b'{"items": [')
    with suppress(OSError):
        while True:
            handler.wfile.write(b"1," * 50_000)


@pytest.mark.parametrize("through_proxy", [False, True])
def test_an_answer_without_an_end_is_our_error(
    access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, through_proxy: bool
) -> None:
    monkeypatch.setattr(direct, "MOST", 3 << 20)
    stand_in.answer_with(has_no_end)
    with Proxy() as proxy:
        reached = replace(access, proxy=f"http://{proxy.address}") if through_proxy else access
        with pytest.raises(Unreachable, match="its answer has more than 3 MiB") as caught:
            Api(reached, "ours", patience=5.0).list("Pod")
    assert "does not behave as an API server" in caught.value.hint
    assert len(stand_in.seen) == 1  # another try would not help


def test_a_small_answer_that_unpacks_to_a_large_one_is_our_error(
    access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "MOST", 1 << 20)
    stand_in.answer_with(says(200, gzip.compress(bytes(50 << 20)), Content_Encoding="gzip"))
    with pytest.raises(Unreachable, match="more than 1 MiB"):
        Api(replace(access, compress=True), "ours", patience=5.0).get("Pod", "p")


def test_an_answer_that_takes_for_ever_is_our_error(
    access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "LONGEST", 0.0)
    stand_in.answer_with(has_no_end)
    with pytest.raises(Unreachable, match="did not end within 0 s"):
        Api(access, "ours", patience=5.0).get("Pod", "p")


def test_a_line_of_a_watch_without_an_end_is_our_error(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LONGEST_LINE", 1 << 20)
    stand_in.answer_with(has_no_end)
    with pytest.raises(Unreachable, match="a line of its answer has more than 1 MiB"):
        list(api.watch("Pod", dict, version="1", timeout=60.0))


def test_a_list_without_an_end_is_our_error(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, {"kind": "PodList", "metadata": {"continue": "more"}, "items": [POD]}))
    with pytest.raises(Unreachable, match="list has no end"):
        api.list("Pod")
