"""Which cluster, as which user, in which namespace: the choice that kubectl makes for the same files and
environment.

Reads the files of KUBECONFIG (or ~/.kube/config, or a pod's own service account) into one `Access`, without a
request to the cluster and without starting a plugin."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from echelon.engines.kubernetes.client.border import Each, Shape, fit
from echelon.engines.kubernetes.client.login.access import Access, Login
from echelon.engines.kubernetes.client.login.kubeconfig_entries import Section, resolved
from echelon.errors import Unavailable
from echelon.home_folder import home_folder

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

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
        looked = (
            f"nothing in {', '.join(map(str, files))}" if files else "there is no home folder to find it in"
        )
        raise Unavailable(
            f"no kubeconfig: {looked}",
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
    home = home_folder(variables)
    return [] if home is None else [home / ".kube" / "config"]


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
