"""Who the user is, shown over real connections: tokens that end, certificates, acting as somebody else."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.kubernetes.stand_in import POD, Certificates, StandIn, refuses, says, streams

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access, ExecPlugin, Login
from echelon.errors import Denied


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
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = ExecPlugin(
        command="cat", args=(str(tmp_path / "answer"),), api_version=str(answer["apiVersion"]), mode="Never"
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
