"""The way to the server: certificates, names, proxies, and nobody there."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.engines.kubernetes.stand_in import POD, Certificates, Proxy, StandIn, says, streams, waits

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import EchelonError, Unreachable


def test_another_name_in_the_certificate(access: Access, stand_in: StandIn) -> None:
    by_name = replace(access, server=stand_in.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(Unreachable) as caught:
        Api(by_name).raw("/version")
    assert "certificate is not trusted" in caught.value.message
    assert "tls-server-name" in caught.value.hint
    Api(replace(by_name, server_name="api.example")).raw("/version")
    Api(replace(by_name, verify=False, authority_data=b"")).raw("/version")


def test_an_authority_that_did_not_sign_it(access: Access, stand_in: StandIn) -> None:
    with pytest.raises(Unreachable) as caught:
        Api(replace(access, authority_data=b"")).raw("/version")
    assert "certificate is not trusted" in caught.value.message
    assert "certificate-authority" in caught.value.hint
    assert stand_in.seen == []


def test_a_certificate_is_trusted_by_itself(
    access: Access, stand_in: StandIn, certificates: Certificates
) -> None:
    Api(replace(access, authority_data=certificates.server.read_bytes())).raw("/version")


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("https://127.0.0.1:{}", "it refuses connections"),
        ("https://no-such-host.invalid", "not known to DNS"),
    ],
)
def test_a_server_that_is_not_there(access: Access, server: str, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    there = server.format(port)
    with pytest.raises(Unreachable) as caught:
        Api(replace(access, server=there), patience=0).raw("/version")
    assert caught.value.message.startswith(f"cannot reach {there} (context test): ")
    assert reason in caught.value.message
    assert caught.value.hint


def test_a_server_that_speaks_no_tls(access: Access) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            client, _ = listener.accept()
            with client, suppress(ConnectionError):
                client.recv(4096)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                client.recv(4096)

        thread = threading.Thread(target=speak)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unreachable, match="does not speak TLS"):
            Api(replace(access, server=url), patience=0).raw("/version")
        thread.join()


def test_a_server_that_says_nothing(
    access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.client.http.direct.READ", 0.2)
    over = threading.Event()
    stand_in.answer_with(waits(over))
    with pytest.raises(Unreachable, match="no answer in time"):
        Api(access, patience=0).raw("/version")
    over.set()


@pytest.mark.parametrize("configured", [True, False])
def test_a_proxy_stands_in_between(
    access: Access, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, configured: bool
) -> None:
    # A server on this machine is reached without one, unless the kubeconfig says so: call it by a name.
    monkeypatch.setattr("echelon.engines.kubernetes.client.http.proxies._address", lambda _: None)
    with Proxy() as proxy:
        address = f"http://ann:hush@{proxy.address}"
        if configured:
            access = replace(access, proxy=address)
        else:
            monkeypatch.setenv("HTTPS_PROXY", address)
        api = Api(access)
        stand_in.answer_with(says(200, POD), streams([b"hello"]))
        assert api.get("Pod", "p") == POD
        assert list(api.logs("p", container="c", follow=True)) == [b"hello"]
        assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{stand_in.port}".encode())
        assert b"Proxy-Authorization: Basic" in proxy.asked[0]
    with pytest.raises(Unreachable) as caught:
        Api(replace(access, proxy="http://ann:hush@127.0.0.1:9"), patience=0).raw("/version")
    assert "through the proxy http://127.0.0.1:9" in caught.value.message
    assert "hush" not in str(caught.value)


def test_a_proxy_that_is_no_address(access: Access) -> None:
    with pytest.raises(EchelonError, match="is not an address of a proxy"):
        Api(replace(access, proxy="http://ann:hush@[::1"), patience=0).raw("/version")


def test_a_socks_proxy_needs_a_package(access: Access) -> None:
    with pytest.raises(EchelonError, match="socksio"):
        Api(replace(access, proxy="socks5://127.0.0.1:9"), patience=0).raw("/version")
