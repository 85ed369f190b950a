"""A real Jupyter server in a real cluster, reached as its user reaches it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.faults.kubernetes.terminal import Terminal

# Jupyter's own libraries warn about what is none of our business.
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.filterwarnings("default")]

CODE = """
import os
with open("kept.txt", "w") as file:
    file.write("mine")
print(os.getcwd(), 6 * 7, flush=True)
"""


def ask(address: str, token: str, method: str = "GET") -> tuple[int, Any]:
    """The server's answer to a request with a token: the status, and what it says."""
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(address, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None


async def execute(address: str, token: str, code: str) -> str:
    """What a kernel prints, asked through the server's websocket as a browser does."""
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    request = HTTPRequest(address, headers={"Authorization": f"token {token}"}, request_timeout=60)
    connection = await websocket_connect(request)
    try:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "1", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await connection.write_message(json.dumps({**message, "channel": "shell", "username": ""}))
        while (text := await asyncio.wait_for(connection.read_message(), 120)) is not None:
            found = json.loads(text)
            if found["msg_type"] == "stream":
                return str(found["content"]["text"])
        return ""
    finally:
        connection.close()


def test_up_open_and_down(terminal: Terminal, image: Callable[[str], str]) -> None:
    pytest.importorskip("tornado")
    from tornado.httpclient import HTTPClientError

    asked = ("jupyter", "up", "--name", "me", "--image", image("jupyter"), "--volume", "new:100Mi")
    first = terminal.call(*asked)
    assert first.returncode == 0, first.stderr
    there = terminal.kubectl("get", "job", "notebook-me", "-o", "jsonpath={.metadata.uid}")
    again = terminal.call(*asked)  # harmless
    assert again.returncode == 0, again.stderr
    assert terminal.kubectl("get", "job", "notebook-me", "-o", "jsonpath={.metadata.uid}") == there
    other = terminal.call("jupyter", "up", "--name", "me", "--image", "another")
    assert other.returncode == 122
    assert "other settings" in other.stderr

    opened = terminal.start("jupyter", "open", "--name", "me", "--port", "0")
    opened.wait_for("token=")
    (address,) = opened.lines
    token = parse_qs(urlsplit(address).query)["token"][0]
    server = address.partition("/?")[0]
    assert ask(f"{server}/api/kernels", "wrong" + token)[0] == 403
    assert ask(f"{server}/api/kernels", "")[0] == 403
    status, kernel = ask(f"{server}/api/kernels", token, "POST")
    assert status == 201
    channels = f"{server.replace('http', 'ws')}/api/kernels/{kernel['id']}/channels"
    with pytest.raises(HTTPClientError, match="403"):
        asyncio.run(execute(channels, "wrong", CODE))
    assert asyncio.run(execute(channels, token, CODE)) == "/workspace 42\n"

    # The token is in the Secret and nowhere else; nobody reaches the server but through the API server.
    (pod,) = terminal.kubectl.items("pods")
    shown = terminal.kubectl("get", "jobs,pods,configmaps,events", "-o", "yaml")
    for text in (shown, terminal.kubectl("logs", pod["metadata"]["name"]), first.stdout, first.stderr):
        assert token not in text
    search = f"grep -rlF -e {token} /workspace || true"  # the volume stays when the server goes
    assert terminal.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", search) == ""
    with pytest.raises(OSError):  # noqa: PT011 - refused, or no way to it
        socket.create_connection((pod["status"]["podIP"], 8888), timeout=5).close()

    opened.process.send_signal(signal.SIGINT)
    assert opened.wait() == 130
    done = terminal.call("jupyter", "down", "--name", "me")
    assert done.returncode == 0, done.stderr
    assert "volume notebook-me-files stays" in done.stderr
    claim = ["persistentvolumeclaim/notebook-me-files"]
    wait_until(lambda: terminal.left_of("notebook-me") == claim, "only the claim to be left", 90)
    done = terminal.call("jupyter", "down", "--name", "me", "--volumes")
    assert "volume notebook-me-files is removed" in done.stderr
    assert terminal.left_of("notebook-me") == []


def test_what_cannot_serve_leaves_nothing(terminal: Terminal) -> None:
    missing = terminal.call("jupyter", "open", "--name", "me")
    assert missing.returncode == 119
    assert "jupyter up" in missing.stderr
    done = terminal.call("jupyter", "up", "--name", "me", "--image", terminal.image, "--volume", "new:100Mi")
    assert done.returncode == 119
    assert "has no Jupyter" in done.stderr
    terminal.wait_for_nothing("notebook-me")
    assert terminal.call("jupyter", "down", "--name", "me", "--volumes").returncode == 0  # harmless
