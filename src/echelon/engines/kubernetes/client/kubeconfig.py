"""Which cluster, as which user, in which namespace: the choice that kubectl makes for the same files and
environment.

Reads the files of KUBECONFIG (or ~/.kube/config, or a pod's own service account) into one `Access`, without a
request to the cluster and without starting a plugin."""

from __future__ import annotations

import base64
import binascii
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from echelon.engines.kubernetes.client.access import MODES, PLUGIN_VERSIONS, Access, ExecPlugin, Login
from echelon.engines.kubernetes.client.border import Each, Shape, fit
from echelon.errors import Unavailable

__all__ = ["Access", "load_access"]

Section = Mapping[str, Any]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_EXTENSION = "client.authentication.k8s.io/exec"
# Auth providers that kubectl dropped, or that need a library each, and what replaced them.
REPLACED_BY = {
    "gcp": "install gke-gcloud-auth-plugin and run `gcloud container clusters get-credentials` again",
    "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    "oidc": "use an exec plugin such as `kubectl oidc-login` (kubelogin)",
}


# What else than this stands in a kubeconfig is not read.
_WORD = (str, int, float)
_SHAPES: Mapping[str, Shape] = {
    "context": {"cluster": _WORD, "user": _WORD, "namespace": _WORD},
    "cluster": {
        "server": str,
        "certificate-authority": str,
        "certificate-authority-data": str,
        "insecure-skip-tls-verify": bool,
        "tls-server-name": str,
        "proxy-url": str,
        "disable-compression": bool,
        "extensions": [{"name!": str}],
    },
    "user": {
        "token": _WORD,
        "tokenFile": str,
        "username": _WORD,
        "password": _WORD,
        "client-certificate": str,
        "client-certificate-data": str,
        "client-key": str,
        "client-key-data": str,
        "auth-provider": {"name": str},
        "as": _WORD,
        "as-uid": _WORD,
        "as-groups": [_WORD],
        "as-user-extra": Each(values=[_WORD]),
        "exec": {
            "apiVersion": str,
            "command": str,
            "args": [_WORD],
            "env": [{"name!": str, "value": _WORD}],
            "interactiveMode": str,
            "provideClusterInfo": bool,
            "installHint": str,
        },
    },
}
_LARGEST = 16 * 2**20  # bytes of a kubeconfig
_MOST_VALUES = 1_000_000  # in it, counted as often as aliases repeat them


def load_access(
    context: str | None = None, namespace: str | None = None, *, environment: Mapping[str, str] | None = None
) -> Access:
    """The access that kubectl would use with the same `--context` and `--namespace`."""
    variables = os.environ if environment is None else environment
    files = kubeconfig_files(variables)
    config = merged([(path, text) for path in files if (text := _read(path)) is not None])
    if not config["contexts"] and not config["clusters"] and not context:
        inside = in_cluster(variables, namespace)
        if inside is not None:
            return inside
        looked = ", ".join(map(str, files))
        raise Unavailable(
            f"no kubeconfig: nothing in {looked}",
            hint="ask for one, and set KUBECONFIG to where it is; `kubectl config view` shows what is read",
        )
    return resolved(config, context, namespace)


def is_configured(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a cluster is named anywhere: by KUBECONFIG, whether that file is there or not, in the file that
    is read without it, or by being in a pod.
    """
    variables = os.environ if environment is None else environment
    if variables.get("KUBECONFIG") or in_cluster(variables) is not None:
        return True
    return any((_read(path) or "").strip() for path in kubeconfig_files(variables))


def kubeconfig_files(variables: Mapping[str, str]) -> list[Path]:
    """The files that are read, each once, whether they exist or not."""
    named = dict.fromkeys(filter(None, variables.get("KUBECONFIG", "").split(os.pathsep)))
    if named:
        return [Path(name) for name in named]
    home = variables.get("HOME") or str(Path.home())
    return [Path(home) / ".kube" / "config"]


def merged(texts: Iterable[tuple[Path, str]]) -> dict[str, Any]:
    """Several kubeconfigs as one: the first file with an entry, or with a current context, wins.

    Entries keep the folder of their file under "folder", since paths in them are relative to it."""
    together: dict[str, Any] = {"contexts": {}, "clusters": {}, "users": {}, "current-context": ""}
    for path, text in texts:
        document = _parse(path, text)
        folder = path.absolute().parent
        for plural, singular in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            listed = document.get(plural) or []
            for entry in listed if isinstance(listed, list) else [None]:
                if not isinstance(entry, Mapping) or not isinstance(entry.get(singular) or {}, Mapping):
                    raise _wrong(path, f"an entry of {plural} is not a mapping")
                fitting = fit(dict(entry.get(singular) or {}), _SHAPES[singular])
                values = {**fitting, "folder": folder}
                together[plural].setdefault(str(fit(entry.get("name", ""), _WORD) or ""), values)
        current = str(fit(document.get("current-context"), _WORD) or "")
        together["current-context"] = together["current-context"] or current
    return together


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
            hint=f"`kubectl config set-context {chosen} --cluster=NAME` names another",
        )
    user = config["users"].get(user_name) if user_name else {}
    if user is None:
        raise Unavailable(
            f"context {chosen!r} names user {user_name!r}, which the kubeconfig does not have",
            hint=f"`kubectl config set-context {chosen} --user=NAME` names another",
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


def in_cluster(
    variables: Mapping[str, str], namespace: str | None = None, folder: Path = SERVICE_ACCOUNT
) -> Access | None:
    """The access of a pod's own service account; None outside of a pod."""
    host, port = variables.get("KUBERNETES_SERVICE_HOST"), variables.get("KUBERNETES_SERVICE_PORT", "443")
    token = folder / "token"
    if not host or not token.is_file():
        return None
    own = (_read(folder / "namespace") or "").strip()
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        user="the pod's service account",
        namespace=namespace or variables.get("POD_NAMESPACE") or own or "default",
        authority=str(folder / "ca.crt") if (folder / "ca.crt").is_file() else "",
        login=Login(token_file=str(token)),
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
            f"cluster {name!r} has the server {server}, which is no address",
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


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise _wrong(path, f"it is larger than {_LARGEST >> 20} MiB")
        return content.decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise _wrong(path, f"it cannot be read: {reason}") from None


def _parse(path: Path, text: str) -> Section:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(text, loader)  # noqa: S506 - the loader is a safe one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise _wrong(path, f"it is not YAML{where}") from None  # the text around it may be a secret
    except (RecursionError, ValueError):
        raise _wrong(path, "it is nested too deeply, or has a value that is none") from None
    if not isinstance(document or {}, Mapping):
        raise _wrong(path, "it is not a mapping")
    if _count(document, {}) > _MOST_VALUES:
        raise _wrong(path, "its aliases make it endlessly large")
    return document or {}


def _count(value: object, known: dict[int, float]) -> float:
    """How many values there are, each as often as aliases repeat it; infinite if one contains itself."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in known:
        known[id(value)] = math.inf  # until it is counted: an alias of what it stands in
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(each, known) for each in inner)
    return known[id(value)]


def _wrong(path: Path, problem: str) -> Unavailable:
    return Unavailable(
        f"the kubeconfig {path} cannot be used: {problem}", hint="KUBECONFIG names other files to read"
    )
