"""Requests over real connections to a server that is busy, restarting, forgetful, or not there."""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.engines.kubernetes.stand_in import (
    Certificates,
    Proxy,
    StandIn,
    cuts,
    refuses,
    says,
    streams,
    waits,
)

from echelon.engines.kubernetes.access import Access, ExecPlugin, Login
from echelon.engines.kubernetes.api import AlreadyThere, Api, Conflict, Gone, NotThere
from echelon.errors import Denied, EchelonError, Refused, Unreachable

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
BUSY = refuses(503, "ServiceUnavailable", "starting")


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "team", patience=2)


def test_what_is_asked(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, POD))
    assert api.get("Pod", "p") == POD
    seen = stand_in.seen[0]
    assert (seen.method, seen.path) == ("GET", "/api/v1/namespaces/team/pods/p")
    assert "authorization" not in seen.headers


@pytest.mark.parametrize("trouble", [cuts, BUSY, says(502, b"<html>bad gateway</html>"), says(500, b"")])
def test_a_question_is_asked_again(api: Api, stand_in: StandIn, trouble: object) -> None:
    stand_in.answer_with(trouble, trouble, says(200, POD))  # type: ignore[arg-type]
    assert api.get("Pod", "p") == POD
    assert len(stand_in.seen) == 3


def test_an_answer_cut_in_the_middle_is_asked_for_again(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(streams([b'{"kind": '], then=cuts), says(200, POD))
    assert api.get("Pod", "p") == POD


@pytest.mark.parametrize("trouble", [cuts, BUSY, says(504, b"")])
def test_what_would_be_made_twice_is_sent_once(api: Api, stand_in: StandIn, trouble: object) -> None:
    stand_in.answer_with(trouble, says(200, POD))  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        api.create(POD)
    assert len(stand_in.seen) == 1


def test_a_busy_server_is_asked_again_even_to_make_something(api: Api, stand_in: StandIn) -> None:
    busy = refuses(429, "TooManyRequests", "slow down")
    stand_in.answer_with(busy, says(429, b"", Retry_After="0"), says(201, POD))
    assert api.create(POD) == POD
    assert [seen.method for seen in stand_in.seen] == ["POST"] * 3


def test_two_that_count_against_one_quota(api: Api, stand_in: StandIn) -> None:
    conflict = refuses(409, "Conflict", "the object has been modified", details={"kind": "resourcequotas"})
    stand_in.answer_with(conflict, says(201, POD))
    assert api.create(POD) == POD


def test_a_server_that_asks_for_more_patience_than_there_is(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(429, b"", Retry_After="3600"))
    with pytest.raises(Unreachable, match="429"):
        api.get("Pod", "p")
    assert len(stand_in.seen) == 1


def test_patience_ends(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(BUSY)
    with pytest.raises(Unreachable, match="cannot answer now: starting"):
        Api(access, patience=0.3).get("Pod", "p")
    assert len(stand_in.seen) > 1


@pytest.mark.parametrize(("how", "requests"), [("merge", 2), ("strategic", 2), ("apply", 2), ("json", 1)])
def test_changes_that_may_be_repeated(api: Api, stand_in: StandIn, how: str, requests: int) -> None:
    stand_in.answer_with(cuts, says(200, POD))
    try:
        api.patch("Pod", "p", {}, how=how)  # type: ignore[arg-type]
    except Unreachable:
        assert how == "json"
    assert len(stand_in.seen) == requests


def test_a_server_that_is_away_for_a_moment(access: Access, certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    away = replace(access, server=f"https://127.0.0.1:{port}")
    outcome: list[object] = []
    thread = threading.Thread(target=lambda: outcome.append(Api(away, patience=60).create(POD)))
    thread.start()
    with StandIn(certificates, port=port) as server:
        server.answer_with(says(201, POD))
        thread.join(60)
    assert outcome == [POD]


# Who the user is


def with_plugin(access: Access, folder: Path) -> Access:
    """Access by a plugin that hands out a new token every time."""
    program = folder / "aws"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        "with open(os.path.join(os.path.dirname(__file__), 'calls'), 'a+') as calls:\n"
        "    calls.write('x'); calls.seek(0); token = f'token-{len(calls.read())}'\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',\n"
        "                  'status': {'token': token}}))\n"
    )
    program.chmod(0o700)
    plugin = ExecPlugin(command=str(program), api_version="client.authentication.k8s.io/v1", mode="Never")
    return replace(access, login=Login(plugin=plugin))


UNKNOWN = refuses(401, "Unauthorized", "Unauthorized")


def test_a_token_that_ended_is_renewed_once(access: Access, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.answer_with(UNKNOWN, says(201, POD))
    api = Api(with_plugin(access, tmp_path))
    assert api.create(POD) == POD
    assert [seen.headers["authorization"] for seen in stand_in.seen] == ["Bearer token-1", "Bearer token-2"]


def test_a_token_that_is_never_accepted(access: Access, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.answer_with(UNKNOWN)
    with pytest.raises(Denied) as caught:
        Api(with_plugin(access, tmp_path)).get("Pod", "p")
    assert f"{stand_in.url} (context test) does not accept you as user 'ann'" in caught.value.message
    assert "aws sso login" in caught.value.hint
    assert "token-" not in str(caught.value)
    assert len(stand_in.seen) == 2


def test_streams_renew_tokens_too(access: Access, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.answer_with(UNKNOWN, streams([b"hello\n"]))
    assert b"".join(Api(with_plugin(access, tmp_path)).logs("p", container="c")) == b"hello\n"


def test_a_client_certificate_is_shown(access: Access, stand_in: StandIn, certificates: Certificates) -> None:
    login = Login(
        certificate_data=certificates.client.read_bytes(), key_data=certificates.client_key.read_bytes()
    )
    Api(replace(access, login=login)).raw("/version")
    shown = stand_in.seen[0].client
    assert shown is not None
    assert (("commonName", "client"),) in shown["subject"]


def test_a_certificate_from_a_plugin_is_shown(
    access: Access, stand_in: StandIn, certificates: Certificates, tmp_path: Path
) -> None:
    status = {
        "clientCertificateData": certificates.client.read_text(),
        "clientKeyData": certificates.client_key.read_text(),
    }
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = ExecPlugin(
        command="cat", args=(str(tmp_path / "answer"),), api_version=answer["apiVersion"], mode="Never"
    )  # type: ignore[arg-type]
    Api(replace(access, login=Login(plugin=plugin))).raw("/version")
    assert stand_in.seen[0].client


def test_acting_as_somebody_else(access: Access, stand_in: StandIn) -> None:
    act_as = (("Impersonate-User", "bób"), ("Impersonate-Group", "x"), ("Impersonate-Group", "y"))
    Api(replace(access, login=Login(token="t", act_as=act_as))).raw("/version")
    headers = stand_in.seen[0].headers
    assert (headers["impersonate-user"], headers["authorization"]) == (
        "bób".encode().decode("latin-1"),
        "Bearer t",
    )


# Where the server is


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
    monkeypatch.setattr("echelon.engines.kubernetes.session.READ", 0.2)
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
    monkeypatch.setattr("echelon.engines.kubernetes.proxies._address", lambda _: None)
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
    with pytest.raises(EchelonError, match="is no address of a proxy"):
        Api(replace(access, proxy="http://ann:hush@[::1"), patience=0).raw("/version")


def test_a_socks_proxy_needs_a_package(access: Access) -> None:
    with pytest.raises(EchelonError, match="socksio"):
        Api(replace(access, proxy="socks5://127.0.0.1:9"), patience=0).raw("/version")


# What the server says


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refuses(404, "NotFound", 'pods "p" not found'), NotThere, 'pods "p" not found'),
        (refuses(409, "AlreadyExists", 'pods "p" already exists'), AlreadyThere, "already exists"),
        (refuses(409, "Conflict", "the object has been modified"), Conflict, "modified"),
        (refuses(410, "Expired", "too old resource version"), Gone, "too old"),
        (refuses(422, "Invalid", "spec: Required value"), Refused, "spec: Required value"),
        (refuses(413, "RequestEntityTooLarge", "limit is 3145728"), Refused, "larger than"),
        (says(413, b"too large"), Refused, "larger than"),
        (refuses(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: q'), Refused, "exceeded quota"),
        (refuses(400, "BadRequest", 'admission webhook "w" denied the request'), Refused, "webhook"),
        (refuses(405, "MethodNotAllowed", "not allowed"), Refused, "not allowed"),
        (says(403, b"<html>blocked by policy</html>"), Denied, "403 Forbidden"),
        (says(302, b"", Location="https://login.example"), Unreachable, "sends us elsewhere"),
        (says(200, b"<html>please log in</html>"), Unreachable, "does not answer as an API server"),
        (says(404, b"404 page not found"), NotThere, "404 page not found"),
        (says(418, b"<b>teapot</b>"), Refused, "418 teapot"),
    ],
)
def test_refusals(api: Api, stand_in: StandIn, answer: object, kind: type, words: str) -> None:
    stand_in.answer_with(answer)  # type: ignore[arg-type]
    with pytest.raises(EchelonError) as caught:
        api.create(POD)
    assert type(caught.value) is kind
    assert words in caught.value.message
    assert len(stand_in.seen) == 1


def test_kubernetes_words_for_a_missing_right(api: Api, stand_in: StandIn) -> None:
    words = (
        'jobs.batch is forbidden: User "system:serviceaccount:team:ann" cannot create resource "jobs" '
        'in API group "batch" in the namespace "team"'
    )
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with pytest.raises(Denied) as caught:
        api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}})
    user = "system:serviceaccount:team:ann"
    assert caught.value.message == f"you (user {user}) may not create jobs.batch in namespace team"
    assert "kubectl -n team create role echelon-create-jobs-batch --verb=create --resource=jobs.batch" in (
        caught.value.hint
    )
    assert "--serviceaccount=team:ann" in caught.value.hint


def test_a_cluster_wide_right(api: Api, stand_in: StandIn) -> None:
    words = 'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope'
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with pytest.raises(Denied) as caught:
        api.list("Node")
    assert caught.value.message == "you (user bob) may not list nodes"
    assert "create clusterrole " in caught.value.hint
    assert "--user=bob" in caught.value.hint


def test_somebody_who_has_shown_nothing(api: Api, stand_in: StandIn) -> None:
    words = 'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group ""'
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with pytest.raises(Denied, match="does not accept you"):
        api.list("Pod")


# Names and kinds


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_a_name_never_becomes_another_path(api: Api, stand_in: StandIn, name: str) -> None:
    with pytest.raises(Refused, match="is no name of a Pod"):
        api.delete("Pod", name)
    if name:
        with pytest.raises(Refused, match="is no namespace"):
            api.delete("Pod", "p", namespace=name)
    assert stand_in.seen == []


def test_odd_names_are_quoted(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, POD))
    api.get("Pod", "a?b#c%2e")
    assert stand_in.seen[0].path == "/api/v1/namespaces/team/pods/a%3Fb%23c%252e"


def test_kinds_that_are_not_in_the_table_are_looked_up_once(api: Api, stand_in: StandIn) -> None:
    served = [
        {"name": "widgets/status", "kind": "Widget", "namespaced": False},
        {"name": "widgets", "kind": "Widget", "namespaced": False},
    ]
    stand_in.answer_with(says(200, {"resources": served}), says(200, {"items": []}))
    api.list("widgets.v1alpha1.things.example")
    api.list("widgets.v1alpha1.things.example")
    api.create({"apiVersion": "things.example/v1alpha1", "kind": "Widget", "metadata": {"name": "w"}})
    widgets = "/apis/things.example/v1alpha1/widgets"
    group = "/apis/things.example/v1alpha1"
    paths = [path.partition("?")[0] for path in stand_in.paths()]
    assert paths == [group, widgets, widgets, widgets]


def test_a_kind_that_nobody_defined(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, {"resources": []}))
    with pytest.raises(NotThere, match="no gadgets of things"):
        api.list("gadgets.v1.things.example")
    with pytest.raises(Refused, match="no kind of object is called 'Gadget'"):
        api.list("Gadget")


def test_pages_are_put_together(api: Api, stand_in: StandIn) -> None:
    def page(names: str, mark: str = "") -> object:
        items = [{"metadata": {"name": name}} for name in names]
        about = {"resourceVersion": "7", "continue": mark}
        return says(200, {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": items})

    stand_in.answer_with(page("ab", "x"), page("cd", "y"), page("e"))  # type: ignore[arg-type]
    listing = api.list("Pod", selector="a=b", fields="c=d")
    assert "".join(item["metadata"]["name"] for item in listing.items) == "abcde"
    assert {(item["kind"], item["apiVersion"]) for item in listing.items} == {("Pod", "v1")}
    assert listing.version == "7"
    assert "labelSelector=a%3Db&fieldSelector=c%3Dd&limit=500&continue=x" in stand_in.paths()[1]
    stand_in.answer_with(page("ab", "x"), refuses(410, "Expired", "too old"), page("abc"))  # type: ignore[arg-type]
    assert len(api.list("Pod").items) == 3
    assert "limit" not in stand_in.paths()[-1]


# Streams


def line(kind: str, version: str) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"resourceVersion": version}}}).encode() + b"\n"


def test_a_watch_tells_what_happens(api: Api, stand_in: StandIn) -> None:
    text = line("ADDED", "1") + line("BOOKMARK", "2")
    stand_in.answer_with(streams([text[:10], text[10:90], text[90:]]))
    with api.watch("Pod", version="0", timeout=10) as watch:
        seen = [(kind, subject["metadata"]["resourceVersion"]) for kind, subject in watch]
    assert seen == [("ADDED", "1"), ("BOOKMARK", "2")]
    assert "watch=true" in stand_in.paths()[0]
    assert "timeoutSeconds=10" in stand_in.paths()[0]


def test_a_watch_from_too_old_a_version(api: Api, stand_in: StandIn) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    stand_in.answer_with(streams([json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"]))
    with pytest.raises(Gone, match="too old"):
        list(api.watch("Pod", version="0", timeout=10))


def test_a_watch_that_is_cut_says_so(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(streams([line("ADDED", "1")], then=cuts))
    watch = api.watch("Pod", version="0", timeout=10)
    assert next(watch)[0] == "ADDED"
    with pytest.raises(Unreachable):
        next(watch)
    assert list(watch) == []


def test_a_watch_on_a_dead_connection_ends_at_its_time(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.api.GRACE", 0.1)
    over = threading.Event()
    stand_in.answer_with(streams([line("ADDED", "1")], then=waits(over)))
    assert len(list(api.watch("Pod", version="0", timeout=0.2))) == 1
    over.set()


@pytest.mark.parametrize("begun", [True, False])
def test_another_thread_can_end_a_stream(api: Api, stand_in: StandIn, begun: bool) -> None:
    over = threading.Event()
    stand_in.answer_with(streams([b"one\n"], then=waits(over)) if begun else waits(over))
    got: list[bytes] = []
    logs = api.logs("p", container="c", follow=True)
    thread = threading.Thread(target=lambda: got.extend(logs))
    thread.start()
    wait_until(lambda: got if begun else stand_in.seen, "the stream to begin")
    logs.close()
    thread.join(30)
    assert not thread.is_alive()
    assert got == ([b"one\n"] if begun else [])
    assert list(logs) == []
    over.set()


def test_a_stream_that_is_closed_before_it_began_sends_nothing(api: Api, stand_in: StandIn) -> None:
    api.logs("p", container="c").close()
    assert stand_in.seen == []


def test_a_stream_that_waits_for_the_server_can_be_ended(access: Access, stand_in: StandIn) -> None:
    stand_in.answer_with(BUSY)
    logs = Api(access, patience=600).logs("p", container="c", follow=True)
    thread = threading.Thread(target=lambda: list(logs))
    thread.start()
    wait_until(lambda: stand_in.seen, "the first request")
    logs.close()
    thread.join(30)
    assert not thread.is_alive()


def test_logs_are_bytes_as_they_come(api: Api, stand_in: StandIn) -> None:
    pieces = [b"\xff\x00half a li", b"ne\r\n", bytes(range(256)) * 300]
    stand_in.answer_with(streams(pieces))
    logs = api.logs("p", container="c", since="2026-01-01T00:00:00Z", tail=5)
    assert b"".join(logs) == b"".join(pieces)
    assert "container=c&sinceTime=2026-01-01T00%3A00%3A00Z&tailLines=5" in stand_in.paths()[0]


def test_many_threads_share_one_session(api: Api, stand_in: StandIn) -> None:
    together = threading.Barrier(30)

    def answer(handler: object) -> None:
        together.wait(60)
        streams([b"x"])(handler)  # type: ignore[arg-type]

    stand_in.answer_with(answer)
    got: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: got.extend(api.logs("p", container="c", follow=True)))
        for _ in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == [b"x"] * 30


def test_connections_are_used_again(api: Api, stand_in: StandIn) -> None:
    for _ in range(5):
        api.raw("/version")
    assert len({seen.port for seen in stand_in.seen}) == 1
    api.close()
    api.raw("/version")
    assert len({seen.port for seen in stand_in.seen}) == 2
