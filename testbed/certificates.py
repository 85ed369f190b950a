"""Identities in the cluster: one authority, and a certificate for each user and component, made by openssl.

A test's user, or a node that joins later, needs only one more certificate: no token file, no restart.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from echelon.errors import Unavailable
from testbed.debian import tool
from testbed.network import FIRST_SERVICE, GATEWAY
from testbed.paths import CERTIFICATES, write

AUTHORITY = CERTIFICATES / "ca.crt"
AUTHORITY_KEY = CERTIFICATES / "ca.key"
SERVICE_ACCOUNT_KEY = CERTIFICATES / "service-accounts.key"
SERVER = f"https://{GATEWAY}:6443"
DAYS = "30"


def make_authority() -> None:
    """The cluster's authority, the API server's certificate and the service accounts' key."""
    CERTIFICATES.mkdir(parents=True, exist_ok=True, mode=0o700)
    _new_key(AUTHORITY_KEY)
    _openssl(
        "req",
        "-x509",
        "-new",
        "-key",
        AUTHORITY_KEY,
        "-subj",
        "/CN=testbed",
        "-days",
        DAYS,
        "-out",
        AUTHORITY,
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
    )
    names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    alternatives = [f"DNS:{name}" for name in names] + [
        f"IP:{address}" for address in ("127.0.0.1", FIRST_SERVICE, GATEWAY)
    ]
    _issue("apiserver", "/CN=kube-apiserver", extensions=f"subjectAltName={','.join(alternatives)}\n")
    _new_key(SERVICE_ACCOUNT_KEY)


def client_certificate(user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
    """The certificate and key of a user; RBAC sees its name and groups."""
    subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
    return _issue(
        user.replace(":", "-").replace("/", "-"), subject, extensions="extendedKeyUsage=clientAuth\n"
    )


def server_certificate(name: str) -> tuple[Path, Path]:
    """The certificate and key of a server of this machine that the API server calls."""
    return _issue(f"server-{name}", f"/CN={name}", extensions="subjectAltName=IP:127.0.0.1\n")


def authority() -> str:
    """The authority's certificate, as objects of the API carry it."""
    return _encoded(AUTHORITY)


def write_kubeconfig(
    path: Path, user: str, groups: Sequence[str] = (), *, namespace: str = "default"
) -> Path:
    """A kubeconfig with its certificates inside, so that it can be copied."""
    certificate, key = client_certificate(user, groups)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [
            {
                "name": "testbed",
                "cluster": {"server": SERVER, "certificate-authority-data": _encoded(AUTHORITY)},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)},
            }
        ],
        "contexts": [
            {"name": "testbed", "context": {"cluster": "testbed", "user": user, "namespace": namespace}}
        ],
    }
    return write(path, yaml.safe_dump(content, sort_keys=False), mode=0o600)


def _issue(name: str, subject: str, *, extensions: str) -> tuple[Path, Path]:
    key, request, certificate = (CERTIFICATES / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
    _new_key(key)
    _openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
    wanted = write(CERTIFICATES / f"{name}.ext", extensions)
    _openssl(
        "x509",
        "-req",
        "-in",
        request,
        "-CA",
        AUTHORITY,
        "-CAkey",
        AUTHORITY_KEY,
        "-days",
        DAYS,
        "-out",
        certificate,
        "-extfile",
        wanted,
    )
    return certificate, key


def _new_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
    path.chmod(0o600)


def _openssl(*words: str | Path) -> None:
    done = subprocess.run([tool("openssl"), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(
            f"openssl {words[0]} failed: {done.stderr.strip()}", hint="install openssl 3 or newer"
        )


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
