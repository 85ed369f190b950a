"""Proofs of who the user is: real plugins, small ones."""

from __future__ import annotations

import base64
import json
import stat
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

from echelon.engines.kubernetes.client.login.access import Access, ExecPlugin, Login
from echelon.engines.kubernetes.client.login.credentials import (
    Credentials,
    Proof,
    has_ended,
    log_in_again,
    read_answer,
)
from echelon.errors import Denied, Unavailable

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
SERVER = Access(server="https://api.example", context="red", user="ann")


def made_plugin(folder: Path, body: str, **more: object) -> Access:
    """Access by a plugin that runs `body`, with `answer(**status)` at hand."""
    program = folder / "login-plugin"
    head = f"""\
        #!{sys.executable}
        import json, os, sys
        info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
        def answer(version=info["apiVersion"], **status):
            print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
        """
    program.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    asked = {"api_version": V1, "mode": "Never", "command": str(program)} | more
    return replace(SERVER, login=Login(plugin=ExecPlugin(**asked)))  # type: ignore[arg-type]


def test_a_token_is_sent_as_it_is() -> None:
    credentials = Credentials(replace(SERVER, login=Login(token="abc")))
    proof = credentials.current()
    assert proof.authorization == "Bearer abc"
    assert not credentials.renew(proof)


def test_a_password_is_sent_as_basic() -> None:
    proof = Credentials(replace(SERVER, login=Login(username="ann", password="ü:x"))).current()
    assert base64.b64decode(proof.authorization.removeprefix("Basic ")).decode() == "ann:ü:x"


def test_a_token_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = Credentials(replace(SERVER, login=Login(token_file=str(file), token="weaker")))
    proof = credentials.current()
    assert proof.authorization == "Bearer one"
    assert not credentials.renew(proof)
    file.write_text("two\n")
    assert credentials.renew(proof)
    assert credentials.current().authorization == "Bearer two"
    file.unlink()
    assert credentials.current().authorization == "Bearer weaker"


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"token file .*missing cannot be read"):
        Credentials(replace(SERVER, login=Login(token_file=str(tmp_path / "missing")))).current()


@pytest.mark.parametrize("token", ["hush\nX-Other: 1", "hüsh"])
def test_what_cannot_be_a_token_is_not_quoted(token: str) -> None:
    with pytest.raises(Denied, match="holds characters that no token has") as caught:
        Credentials(replace(SERVER, login=Login(token=token))).current()
    assert token not in str(caught.value)


def test_nothing_to_show() -> None:
    assert Credentials(SERVER).current() == Proof()
    assert "no credentials" in log_in_again(SERVER)


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugin_gives_a_token(tmp_path: Path, version: str) -> None:
    access = made_plugin(
        tmp_path,
        'answer(token=" ".join(sys.argv[1:]) + os.environ["EXTRA"])',
        args=("a", "b c"),
        env=(("EXTRA", "!"),),
        api_version=version,
    )
    assert Credentials(access).current().authorization == "Bearer a b c!"


def test_a_plugin_gives_a_certificate(tmp_path: Path) -> None:
    access = made_plugin(tmp_path, 'answer(clientCertificateData="CERT", clientKeyData="KEY")')
    assert Credentials(access).current() == Proof(pair=(b"CERT", b"KEY"))


COUNTS = """\
with open(os.path.join(os.path.dirname(__file__), "calls"), "a+") as calls:
    calls.write("x")
    calls.seek(0)
    number = len(calls.read())
"""


def test_a_plugin_is_asked_once_while_its_word_holds(tmp_path: Path) -> None:
    access = made_plugin(
        tmp_path, COUNTS + 'answer(token=str(number), expirationTimestamp="2999-01-01T00:00:00Z")'
    )
    credentials = Credentials(access)
    got: list[str] = []
    threads = [
        threading.Thread(target=lambda: got.append(credentials.current().authorization)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["Bearer 1"] * 8


def test_a_plugin_is_asked_again_when_its_word_has_ended(tmp_path: Path) -> None:
    access = made_plugin(
        tmp_path, COUNTS + 'answer(token=str(number), expirationTimestamp="2001-01-01T00:00:00Z")'
    )
    credentials = Credentials(access)
    assert [credentials.current().authorization for _ in range(2)] == ["Bearer 1", "Bearer 2"]


def test_a_plugin_is_asked_again_when_its_word_was_turned_down(tmp_path: Path) -> None:
    credentials = Credentials(made_plugin(tmp_path, COUNTS + "answer(token=str(number))"))
    old = credentials.current()
    assert credentials.renew(old)
    assert credentials.current().authorization == "Bearer 2"
    assert credentials.renew(old)  # another thread that still had the old one
    assert credentials.current().authorization == "Bearer 2"


def test_a_token_in_the_kubeconfig_is_stronger_than_a_plugin(tmp_path: Path) -> None:
    access = made_plugin(tmp_path, "sys.exit(1)")
    access = replace(access, login=replace(access.login, token="mine"))
    assert Credentials(access).current().authorization == "Bearer mine"


def test_what_a_plugin_is_told(tmp_path: Path) -> None:
    tells = 'answer(token=json.dumps(info["spec"]))'
    access = replace(
        made_plugin(tmp_path, tells, cluster_info=True, config={"audience": "x"}),
        authority_data=b"PEM",
        server_name="api",
        proxy="http://proxy",
    )
    told = json.loads(Credentials(access).current().authorization.removeprefix("Bearer "))
    assert told == {
        "interactive": False,
        "cluster": {
            "server": "https://api.example",
            "tls-server-name": "api",
            "certificate-authority-data": base64.b64encode(b"PEM").decode(),
            "proxy-url": "http://proxy",
            "config": {"audience": "x"},
        },
    }
    silent = made_plugin(tmp_path, tells)
    assert json.loads(Credentials(silent).current().authorization.removeprefix("Bearer ")) == {
        "interactive": False
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('sys.exit("the session has ended")', ["failed with code 1: the session has ended"]),
        ("print('hello')", ["printed no ExecCredential"]),
        (f"answer({V1BETA1!r}, token='x')", ["v1beta1", "the kubeconfig says"]),
        ("answer()", ["gave no credentials"]),
        ("answer(clientKeyData='KEY')", ["only one of certificate and key"]),
        ("answer(token='hush', expirationTimestamp='soon')", ["expirationTimestamp"]),
    ],
)
def test_what_a_plugin_does_wrong_is_said(tmp_path: Path, body: str, words: list[str]) -> None:
    access = made_plugin(tmp_path, body, args=("--secret=hush",))
    with pytest.raises(Denied) as caught:
        Credentials(access).current()
    text = str(caught.value)
    assert "the exec plugin login-plugin of user 'ann'" in text
    assert caught.value.hint
    assert all(word in text for word in words)
    assert "hush" not in text


def test_a_plugin_that_is_not_installed(tmp_path: Path) -> None:
    plugin = ExecPlugin(
        command=str(tmp_path / "gone"), api_version=V1, mode="Never", install_hint="brew install gone"
    )
    with pytest.raises(Unavailable) as caught:
        Credentials(replace(SERVER, login=Login(plugin=plugin))).current()
    assert caught.value.hint == "brew install gone"


def test_a_plugin_that_must_ask_needs_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(Denied, match="no terminal"):
        Credentials(made_plugin(tmp_path, "answer(token='x')", mode="Always")).current()


def test_a_plugin_with_a_terminal_may_ask(tmp_path: Path) -> None:
    import os
    import pty
    import subprocess

    access = made_plugin(
        tmp_path, "answer(token=str(info['spec']['interactive']) + input())", mode="IfAvailable"
    )
    assert access.login.plugin is not None
    program = f"""
from echelon.engines.kubernetes.client.login.access import Access, ExecPlugin, Login
from echelon.engines.kubernetes.client.login.credentials import Credentials
plugin = ExecPlugin(command={access.login.plugin.command!r}, api_version={V1!r}, mode="IfAvailable")
print(Credentials(Access(server="https://x", login=Login(plugin=plugin))).current().authorization)
"""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as terminal:
        process = subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stdout=subprocess.PIPE)
        os.close(theirs)
        terminal.write(b"yes\n")
        output, _ = process.communicate(timeout=PATIENCE)
    assert output.strip() == b"Bearer Trueyes"


def test_a_stuck_plugin_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.engines.kubernetes.client.login.credentials.PLUGIN_PATIENCE", 0.5)
    with pytest.raises(Denied, match=r"did not end within 0.5 s"):
        Credentials(made_plugin(tmp_path, "import time; time.sleep(600)")).current()


def test_known_plugins_have_their_own_advice() -> None:
    plugin = ExecPlugin(command="/usr/bin/gke-gcloud-auth-plugin", api_version=V1, mode="Never")
    assert "gcloud auth login" in log_in_again(replace(SERVER, login=Login(plugin=plugin)))


def test_the_end_of_a_proof() -> None:
    answer = {"apiVersion": V1, "kind": "ExecCredential"}
    ends = {"token": "x", "expirationTimestamp": "2030-01-01T00:00:00+01:00"}
    proof = read_answer(json.dumps({**answer, "status": ends}).encode(), V1, "it")
    assert proof.expires == 1893452400.0
    assert not has_ended(proof, 1893452400.0 - 60)
    assert has_ended(proof, 1893452400.0 - 5)  # it would end on its way
    assert not has_ended(Proof(), 1e12)
