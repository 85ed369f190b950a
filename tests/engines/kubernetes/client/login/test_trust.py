"""TLS: keys that leave no trace, and what is not a certificate."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.kubernetes.stand_in import Certificates

from echelon.engines.kubernetes.client.login.access import Access, Login
from echelon.engines.kubernetes.client.login.trust import make_context, readable
from echelon.errors import Unavailable

SERVER = Access(server="https://api.example", cluster="red", user="ann")


@pytest.mark.parametrize("memory", [True, False])
def test_a_secret_is_readable_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    with readable(b"hush") as path:
        assert Path(path).read_bytes() == b"hush"
        files = list(tmp_path.iterdir())
        assert [file.stat().st_mode & 0o777 for file in files] == ([] if memory else [0o600])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError), readable(b"hush"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_key_from_a_path_and_a_certificate_from_the_kubeconfig(certificates: Certificates) -> None:
    login = Login(certificate_data=certificates.client.read_bytes(), key=str(certificates.client_key))
    make_context(replace(SERVER, login=login))
    other = replace(login, key=str(certificates.server_key))
    with pytest.raises(Unavailable, match="do not fit"):
        make_context(replace(SERVER, login=other))


def test_a_key_with_a_password_asks_nobody(certificates: Certificates, tmp_path: Path) -> None:
    words = [
        "-in",
        str(certificates.client_key),
        "-out",
        str(tmp_path / "key"),
        "-aes256",
        "-passout",
        "pass:abcd",
    ]
    subprocess.run(["openssl", "pkey", *words], check=True, capture_output=True)
    login = Login(certificate=str(certificates.client), key=str(tmp_path / "key"))
    with pytest.raises(Unavailable, match="has a password"):
        make_context(replace(SERVER, login=login))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"certificate-authority .*gone cannot be read: No such file"):
        make_context(replace(SERVER, authority=str(tmp_path / "gone")))
    with pytest.raises(Unavailable, match="of cluster 'red' is not a certificate"):
        make_context(replace(SERVER, authority_data=b"nonsense"))


def test_without_an_authority_the_machine_decides() -> None:
    assert make_context(SERVER).check_hostname
    assert not make_context(replace(SERVER, verify=False)).check_hostname
