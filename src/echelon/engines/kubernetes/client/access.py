"""What it takes to reach a cluster: its server, whom to trust, and how the user proves who they are.

Values only: `kubeconfig` makes them, `credentials`, `trust` and `session` use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# The protocols of exec plugins that are spoken, and how far a plugin may ask the user.
PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MODES = ("Never", "IfAvailable", "Always")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecPlugin:
    """A program that hands out credentials, and how it wants to be called."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str
    mode: str  # of MODES: whether it may ask the user
    cluster_info: bool = False
    install_hint: str = ""
    config: Any = None  # the cluster's extension for plugins, handed through


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """How a user proves who they are. PEM texts and words are secrets, and are never printed."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: str = ""  # a path, unless certificate_data is there
    key: str = ""
    certificate_data: bytes = field(default=b"", repr=False)
    key_data: bytes = field(default=b"", repr=False)
    plugin: ExecPlugin | None = None
    act_as: tuple[tuple[str, str], ...] = ()  # headers of impersonation


@dataclass(frozen=True, kw_only=True, slots=True)
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
    server_name: str = ""  # what the certificate says, if not the server's name
    proxy: str = field(default="", repr=False)  # may hold a password
    compress: bool = True
    login: Login = Login()
