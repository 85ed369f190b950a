"""What it takes to reach a cluster: its server, the authority to trust, and the user's credentials.

Values only: `kubeconfig` makes them, `credentials`, `trust` and `session` use them."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from echelon.values import frozen

# The supported API versions of exec plugins, and the interactive modes of a plugin.
PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MODES = ("Never", "IfAvailable", "Always")


@frozen
class ExecPlugin:
    """A program that issues credentials, and how the kubeconfig wants it to be called."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str
    mode: str  # one of MODES: whether it may prompt the user
    cluster_info: bool = False
    install_hint: str = ""
    config: Any = None  # the cluster's extension for plugins, passed through


@frozen
class Login:
    """A user's credentials. Tokens, passwords and PEM texts are secrets and are never printed."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: str = ""  # a path, unless certificate_data is there
    key: str = ""
    certificate_data: bytes = field(default=b"", repr=False)
    key_data: bytes = field(default=b"", repr=False)
    plugin: ExecPlugin | None = None
    act_as: tuple[tuple[str, str], ...] = ()  # impersonation headers


@frozen
class Access:
    """One cluster as one user in one namespace."""

    server: str  # without a slash at its end
    context: str = ""  # "" for a pod's own service account
    cluster: str = ""
    user: str = ""
    namespace: str = "default"
    authority: str = ""  # a path, unless authority_data is there
    authority_data: bytes = field(default=b"", repr=False)
    verify: bool = True
    server_name: str = ""  # the name in the certificate, if not the server's
    proxy: str = field(default="", repr=False)  # may hold a password
    compress: bool = True
    login: Login = Login()
