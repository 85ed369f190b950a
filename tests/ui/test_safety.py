"""Who is let in, and what becomes of those who try: on the real server, with every header a test's own."""

from __future__ import annotations

import hashlib
import http.client
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.ui.client import Client, engine_with

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.ui import app, server
from echelon.ui.server import Server

Serve = Callable[..., Client]
STATIC = Path(app.__file__).parent / "static"
API = ["/api/about", "/api/runs", "/api/cluster", "/api/runs/fm", "/api/runs/fm/logs", "/api/runs/fm/results"]


def upgrade(client: Client, page: str = "runs", **headers: str) -> int:
    """The answer to a WebSocket's handshake."""
    own = {
        "host": client.host,
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
        **headers,
    }
    head = "\r\n".join(
        [f"GET /api/live?page={page} HTTP/1.1", *(f"{k}: {v}" for k, v in own.items()), "", ""]
    )
    with socket.create_connection(("127.0.0.1", client.port), PATIENCE) as made:
        made.sendall(head.encode())
        return int(made.recv(4096).split()[1])


@pytest.mark.parametrize("path", API)
def test_without_the_cookie_nothing_is_told(serve: Serve, trained: MemoryEngine, path: str) -> None:
    client = serve(trained)
    assert client.get(path)[0] == 401
    assert client.get(path, cookie=f"echelon-{client.port}=guess")[0] == 401
    assert client.get(path, authorization="Bearer guess")[0] == 401
    assert client.get(path, authorization=f"Bearer {client.token}")[0] == 200  # for scripts


def test_a_wrong_token_gives_no_cookie(serve: Serve, trained: MemoryEngine) -> None:
    client = serve(trained)
    status, headers, _ = client.post("/api/session", {"token": "guess"})
    assert status == 403
    assert "set-cookie" not in headers
    assert client.post("/api/session", ["no object"])[0] == 400
    assert client.post("/api/session", {"token": "x" * 10_000})[0] == 413
    _, headers, _ = client.post("/api/session", {"token": client.token})
    assert {"HttpOnly", "SameSite=strict"} <= set(headers["set-cookie"].split("; "))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil"]
)
def test_a_foreign_host_is_refused(serve: Serve, trained: MemoryEngine, host: str) -> None:
    client = serve(trained).enter()
    for path in ("/", "/static/main.js", "/api/runs"):
        assert client.get(path, host=host)[0] == 421
    assert client.post("/api/runs/fm/remove", host=host)[0] == 421
    assert upgrade(client, host=host, origin=f"http://{host}", cookie=client.cookie) == 403
    assert len(client.data("/api/runs")) == 1


def test_another_origin_is_refused(serve: Serve) -> None:
    client = serve(engine_with(fm=Act(lasts=True))).enter()
    for origin in (
        "http://evil.example",
        "null",
        f"https://{client.host}",
        f"http://127.0.0.1:{client.port + 1}",
    ):
        assert client.get("/api/runs", origin=origin)[0] == 403
        assert client.post("/api/runs/fm/stop", origin=origin)[0] == 403
        assert client.post("/api/session", {"token": client.token}, origin=origin)[0] == 403
        assert upgrade(client, origin=origin, cookie=client.cookie) == 403
    assert client.get("/api/runs", **{"sec-fetch-site": "cross-site"})[0] == 403
    assert client.data("/api/runs")[0]["state"] == "running"


def test_what_changes_needs_cookie_origin_and_post(serve: Serve) -> None:
    client = serve(engine_with(fm=Act(lasts=True))).enter()
    host = {"host": client.host}
    cookie, origin = {"cookie": client.cookie}, {"origin": client.origin}
    bearer = {"authorization": f"Bearer {client.token}"}
    stop = "/api/runs/fm/stop"
    assert client.raw("POST", stop, {**host, **cookie})[0] == 403
    assert client.raw("POST", stop, {**host, **origin})[0] == 401
    assert client.raw("POST", stop, {**host, **origin, **bearer})[0] == 401
    assert client.raw("GET", stop, {**host, **cookie, **origin})[0] == 405
    assert upgrade(client, origin=client.origin) == 403
    assert upgrade(client, cookie=client.cookie) == 403
    assert upgrade(client, cookie=client.cookie, origin=client.origin) == 101
    assert upgrade(client, "none", cookie=client.cookie, origin=client.origin) == 403
    assert client.data("/api/runs")[0]["state"] == "running"


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "..%2fsecret",
        "ckpt/../../secret",
        "%2e%2e/secret",
        "link",
        "folder/secret",
        "ckpt",
        "a%00b",
        "",
    ],
)
def test_no_path_leads_out_of_the_results(serve: Serve, results: Path, path: str) -> None:
    client = serve(engine_with(results, fm=Act())).enter()
    status, _, content = client.get(f"/api/runs/fm/results/{path}")
    assert status in (400, 404, 409)
    assert b"of nobody" not in content
    absolute = f"/api/runs/fm/results/{results.parent / 'secret'}"
    assert client.get(absolute)[0] in (400, 404)


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fetc", "fm%2f..%2ffm", "FM", "%00", "k8s:%2f%2fx%2ffm"]
)
def test_only_runs_that_are_listed_have_names(serve: Serve, trained: MemoryEngine, name: str) -> None:
    client = serve(trained).enter()
    assert client.get(f"/api/runs/{name}")[0] == 404
    assert client.post(f"/api/runs/{name}/remove")[0] == 404
    assert len(client.data("/api/runs")) == 1


@pytest.mark.parametrize("path", ["../server.py", "..%2fserver.py", "/etc/passwd", "%2e%2e/app.py", "."])
def test_no_path_leads_out_of_the_pages(serve: Serve, trained: MemoryEngine, path: str) -> None:
    assert serve(trained).enter().get(f"/static/{path}")[0] == 404


def test_every_answer_has_the_policy(serve: Serve, trained: MemoryEngine) -> None:
    client = serve(trained).enter()
    for path in ("/", "/static/main.js", "/api/runs", "/api/none", "/api/runs/none"):
        _, headers, _ = client.get(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/api/runs", host="evil")[1]["content-security-policy"]


def test_pages_have_no_script_inside_and_write_no_html() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"\bon\w+=|style=", page)
    for script in STATIC.glob("*.js"):
        text = script.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function", text
        )


def test_files_of_others_are_as_they_were_released() -> None:
    vendor = STATIC / "vendor"
    known = dict(line.split("  ")[::-1] for line in (vendor / "SHA256SUMS").read_text().splitlines())
    there = {path.name for path in vendor.iterdir()} - {"SHA256SUMS"}
    assert there == set(known)
    for name, digest in known.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name
    assert {"htm-LICENSE.txt", "preact-LICENSE.txt", "uplot-LICENSE.txt"} <= there


def test_half_requests_do_not_keep_others_out(
    serve: Serve, trained: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST", 20)
    monkeypatch.setattr(server, "REQUEST_PATIENCE", 0.5)
    client = serve(trained).enter()
    held = [socket.create_connection(("127.0.0.1", client.port), PATIENCE) for _ in range(60)]
    try:
        for each in held:
            try:
                each.sendall(b"GET / HTTP/1.1\r\nHost: ")
            except OSError:  # it was one too many
                continue

        def answers() -> bool:
            try:
                return client.get("/api/runs")[0] == 200
            except (OSError, ValueError, IndexError):
                return False

        wait_until(answers, "an answer beside half requests")
        wait_until(lambda: all(map(is_closed, held)), "half requests to be ended")
    finally:
        for each in held:
            each.close()


def test_bodies_that_come_byte_by_byte_are_ended(
    serve: Serve, trained: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_PATIENCE", 0.5)
    client = serve(trained).enter()
    head = f"GET / HTTP/1.1\r\nHost: {client.host}\r\nContent-Length: 1000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), PATIENCE) as made:
        made.sendall(head.encode())

        def is_ended() -> bool:
            try:
                made.sendall(b"x")  # more of the body, which nobody asked for
            except OSError:
                return True
            return False

        wait_until(is_ended, "a body that never ends to be ended")
    assert client.get("/api/runs")[0] == 200


SLOW = """
import select, socket, sys
port, many = int(sys.argv[1]), int(sys.argv[2])
held, total = [], 0
while not select.select([sys.stdin], [], [], 0.5)[0]:
    for each in held[:]:
        if select.select([each], [], [], 0)[0]:  # the server has ended it
            held.remove(each)
            each.close()
    for _ in range(min(100, many - len(held))):
        made = socket.socket()
        made.setblocking(False)
        made.connect_ex(("127.0.0.1", port))
        held.append(made)
        total += 1
    for each in select.select([], held, [], 0)[1]:
        try:
            each.send(b"GET / HTTP/1.1\\r\\nHost: ")
        except OSError:
            pass
    print(total, flush=True)
"""


@pytest.mark.slow
def test_thousands_of_slow_connections(home: Path, tmp_path: Path) -> None:
    """At the real bounds, against the real command with 1,024 descriptors."""
    said = tmp_path / "said"
    command = [sys.executable, "-m", "echelon.cli.main", "ui", "--no-browser"]
    with said.open("w") as out, ExitStack() as stack:
        server = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", *command],
            stdout=subprocess.PIPE,
            stderr=out,
            text=True,
        )
        stack.callback(server.wait, PATIENCE)
        stack.callback(server.kill)
        assert server.stdout is not None
        with server.stdout:
            origin, _, token = server.stdout.readline().strip().partition("/#token=")
        port = int(origin.rpartition(":")[2])

        def answers() -> bool:
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
            try:
                asked.request("GET", "/api/runs", headers={"authorization": f"Bearer {token}"})
                return asked.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False
            finally:
                asked.close()

        wait_until(answers, "the dashboard to answer")
        crowds = []
        for _ in range(4):  # each process has 1,024 descriptors as well
            crowd = subprocess.Popen(
                [sys.executable, "-c", SLOW, str(port), "800"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(crowd.wait, PATIENCE)
            stack.callback(crowd.kill)
            assert crowd.stdin is not None
            assert crowd.stdout is not None
            stack.enter_context(crowd.stdin)
            crowds.append(stack.enter_context(crowd.stdout))
        for said_by in crowds:
            assert any(int(line) >= 1000 for line in said_by)
        for _ in range(3):
            wait_until(answers, "an answer beside thousands of slow connections")
        assert server.poll() is None
    assert len(said.read_text().splitlines()) == 1  # how to open it


def is_closed(made: socket.socket) -> bool:
    made.settimeout(0.01)
    try:
        return made.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_only_this_machine_reaches_it(trained: MemoryEngine) -> None:
    server = Server(trained)
    assert server._socket.getsockname()[0] == "127.0.0.1"
    server._socket.close()
