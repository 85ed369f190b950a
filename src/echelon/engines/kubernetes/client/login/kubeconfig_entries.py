"""One context of a kubeconfig, with the cluster and the user that it names, as an `Access`. Pure."""

from __future__ import annotations

import base64
import binascii
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from echelon.engines.kubernetes.client.login.access import MODES, PLUGIN_VERSIONS, Access, ExecPlugin, Login
from echelon.errors import Unavailable

Section = Mapping[str, Any]

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
# Auth providers that kubectl dropped, or that need a library each, and what replaced them.
REPLACED_BY = {
    "gcp": "install gke-gcloud-auth-plugin and run `gcloud container clusters get-credentials` again",
    "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    "oidc": "use an exec plugin such as `kubectl oidc-login` (kubelogin)",
}


def resolved(config: Section, context: str | None, namespace: str | None) -> Access:
    """One context of a merged kubeconfig."""
    names = ", ".join(sorted(config["contexts"])) or "none"
    chosen = context or config["current-context"]
    if not chosen:
        raise Unavailable(
            "the kubeconfig has no current context",
            hint=f"`kubectl config use-context NAME` chooses one of: {names}; or add --context NAME",
        )
    if chosen not in config["contexts"]:
        raise Unavailable(f"the kubeconfig has no context {chosen!r}", hint=f"there are: {names}")
    about = config["contexts"][chosen]
    cluster_name, user_name = str(about.get("cluster", "")), str(about.get("user", ""))
    cluster = config["clusters"].get(cluster_name)
    if cluster is None:
        raise Unavailable(
            f"context {chosen!r} names cluster {cluster_name!r}, which the kubeconfig does not have",
            hint=f"`kubectl config set-context {shlex.quote(chosen)} --cluster=NAME` names another",
        )
    user = config["users"].get(user_name) if user_name else {}
    if user is None:
        raise Unavailable(
            f"context {chosen!r} names user {user_name!r}, which the kubeconfig does not have",
            hint=f"`kubectl config set-context {shlex.quote(chosen)} --user=NAME` names another",
        )
    authority, authority_data = _pem(cluster, "certificate-authority", f"cluster {cluster_name!r}")
    verify = not cluster.get("insecure-skip-tls-verify", False)
    if not verify and (authority or authority_data):
        raise Unavailable(
            f"cluster {cluster_name!r} has a certificate-authority and insecure-skip-tls-verify",
            hint="remove one of them from the kubeconfig; the authority is the safe one to keep",
        )
    login = read_login(user, user_name, cluster)
    has_tls = bool(authority or authority_data or not verify or login.certificate or login.certificate_data)
    return Access(
        server=_server(cluster, cluster_name, "https" if has_tls else "http"),
        context=chosen,
        cluster=cluster_name,
        user=user_name,
        namespace=namespace or str(about.get("namespace") or "default"),
        authority=authority,
        authority_data=authority_data,
        verify=verify,
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or ""),
        compress=not cluster.get("disable-compression", False),
        login=login,
    )


def read_login(user: Section, name: str, cluster: Section) -> Login:
    """The credentials of one user entry."""
    whose = f"user {name!r}"
    if provider := user.get("auth-provider"):
        provider_name = str(provider.get("name", "")) if isinstance(provider, Mapping) else ""
        raise Unavailable(
            f"{whose} logs in by the auth-provider {provider_name!r}, which is no longer supported",
            hint=REPLACED_BY.get(provider_name, "use an exec plugin (client.authentication.k8s.io/v1)"),
        )
    certificate, certificate_data = _pem(user, "client-certificate", whose)
    key, key_data = _pem(user, "client-key", whose)
    if bool(certificate or certificate_data) != bool(key or key_data):
        raise Unavailable(
            f"{whose} has only one of client-certificate and client-key",
            hint="both are needed; ask for a new kubeconfig",
        )
    if (user.get("token") or user.get("tokenFile")) and user.get("username"):
        raise Unavailable(
            f"{whose} has both a token and a password", hint="remove one of them from the kubeconfig"
        )
    return Login(
        token=str(user.get("token") or "").strip(),
        token_file=_located(user, str(user.get("tokenFile") or "")),
        username=str(user.get("username") or ""),
        password=str(user.get("password") or ""),
        certificate=certificate,
        key=key,
        certificate_data=certificate_data,
        key_data=key_data,
        plugin=_plugin(user, whose, cluster) if user.get("exec") else None,
        act_as=tuple(_impersonation(user)),
    )


def _plugin(user: Section, whose: str, cluster: Section) -> ExecPlugin:
    said = user["exec"]
    version = str(said.get("apiVersion") or "")
    if version not in PLUGIN_VERSIONS:
        raise Unavailable(
            f"{whose}: the exec plugin speaks {version or 'no apiVersion'}, which is not supported",
            hint=f"update the plugin and write its kubeconfig entry again ({PLUGIN_VERSIONS[0]})",
        )
    command = str(said.get("command") or "")
    if not command:
        raise Unavailable(f"{whose}: the exec plugin has no command", hint="ask for a new kubeconfig")
    mode = str(said.get("interactiveMode") or ("" if version == PLUGIN_VERSIONS[0] else "IfAvailable"))
    if mode not in MODES:
        raise Unavailable(
            f"{whose}: interactiveMode of the exec plugin is {mode or 'not set'}",
            hint=f"set it in the kubeconfig to one of {', '.join(MODES)}",
        )
    extensions = {str(one.get("name")): one.get("extension") for one in cluster.get("extensions") or []}
    return ExecPlugin(
        # A bare name is looked up in PATH; one with a slash is relative to the kubeconfig.
        command=_located(user, command) if os.sep in command else command,
        args=tuple(str(argument) for argument in said.get("args") or []),
        env=tuple((str(one.get("name")), str(one.get("value", ""))) for one in said.get("env") or []),
        api_version=version,
        mode=mode,
        cluster_info=bool(said.get("provideClusterInfo", False)),
        install_hint=" ".join(str(said.get("installHint") or "").split()),
        config=extensions.get(EXEC_EXTENSION),
    )


def _impersonation(user: Section) -> Iterable[tuple[str, str]]:
    if user.get("as"):
        yield "Impersonate-User", str(user["as"])
    if user.get("as-uid"):
        yield "Impersonate-Uid", str(user["as-uid"])
    for group in user.get("as-groups") or []:
        yield "Impersonate-Group", str(group)
    for key, values in (user.get("as-user-extra") or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{quote(str(key), safe='')}", str(value)


def _server(cluster: Section, name: str, scheme: str) -> str:
    server = str(cluster.get("server") or "").rstrip("/")
    if not server:
        raise Unavailable(f"cluster {name!r} has no server", hint="ask for a new kubeconfig")
    server = server if "://" in server else f"{scheme}://{server}"
    try:
        parts = urlsplit(server)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        is_address = False
    if not is_address:
        raise Unavailable(
            f"cluster {name!r} has the server {server}, which is not an address",
            hint="it looks like https://HOST:PORT; correct it in the kubeconfig",
        )
    return server


def _pem(section: Section, key: str, whose: str) -> tuple[str, bytes]:
    """A path or the content of a PEM file; the content takes precedence."""
    data = section.get(f"{key}-data")
    if not data:
        return _located(section, str(section.get(key) or "")), b""
    try:
        return "", base64.b64decode(data, validate=False)
    except (binascii.Error, TypeError, ValueError):
        raise Unavailable(f"{key}-data of {whose} is not base64", hint="ask for a new kubeconfig") from None


def _located(section: Section, path: str) -> str:
    return str(Path(section.get("folder", "."), path)) if path else ""
