"""The user's login for a registry, from the files of `docker login` and `podman login` and credential
helpers.

The files are read in the order of those tools, and the first with an entry for the registry wins. A helper is
a program that the user's own file names (`docker-credential-NAME`); it gets the registry's name on its
standard input, never on its command line. Secrets stay in memory and out of every message: `repr` of a
credential hides them.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from echelon.errors import Denied
from echelon.home_folder import home_folder
from echelon.image.reference import HUB, Reference
from echelon.values import frozen

# The keys under which tools keep a login for Docker Hub.
_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", HUB, "registry-1.docker.io")
_HELPER_PATIENCE = 60.0
_TOKEN_USER = "<token>"  # noqa: S105 - with this user name, a helper's secret is an identity token


@frozen
class Credential:
    """A user's login for a registry; exactly one kind of secret is set."""

    source: str  # for messages: the file or the helper it comes from
    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)  # exchanged for access tokens
    access_token: str = field(default="", repr=False)  # sent as it is


def find_credential(wanted: Reference, environment: Mapping[str, str] = os.environ) -> Credential | None:
    """This machine's login for a registry, or None."""
    for path in _files(environment):
        document = _read(path)
        if document is not None and (found := _look_up(document, wanted, path)):
            return found
    return None


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The file that `docker login` writes."""
    folder = environment.get("DOCKER_CONFIG") or _home(environment) / ".docker"
    return Path(folder, "config.json")


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    if explicit := environment.get("REGISTRY_AUTH_FILE"):
        yield Path(explicit)
    yield config_file(environment)
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "containers", "auth.json")
    folder = environment.get("XDG_CONFIG_HOME") or _home(environment) / ".config"
    yield Path(folder, "containers", "auth.json")


def _home(environment: Mapping[str, str]) -> Path:
    return home_folder(environment) or Path("/")  # as a container's HOME is, where the user has none


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Denied(
            f"{path}, which holds your logins, cannot be read: {error.strerror}", hint="make it readable"
        ) from error
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Denied(f"{path}, which holds your logins, is not a JSON object", hint="repair or remove it")
    return document


def _look_up(document: dict[str, Any], wanted: Reference, path: Path) -> Credential | None:
    """The registry's own helper comes first, then the general one, then the file's entry."""
    keys = _keys(wanted)
    helpers, entries = _mapping(document, "credHelpers"), _mapping(document, "auths")
    by_key = {_bare(key): entry for key, entry in entries.items() if isinstance(entry, dict)}
    for key in keys:
        if isinstance(helper := helpers.get(key), str) and helper:
            return _from_helper(helper, key)
    if isinstance(store := document.get("credsStore"), str) and store:
        # A login leaves an empty entry behind; without one, a missing helper does not matter.
        logged_in = any(_bare(key) in by_key for key in keys)
        key = _HUB_KEYS[0] if wanted.registry == HUB else wanted.registry
        if (logged_in or shutil.which(_program(store))) and (found := _from_helper(store, key)):
            return found
    for key in map(_bare, keys):
        if key in by_key and (found := _from_entry(by_key[key], path)):
            return found
    return None


def _keys(wanted: Reference) -> tuple[str, ...]:
    """The keys of a login, most specific first: podman keeps logins per repository, too."""
    parts = [wanted.registry, *wanted.repository.split("/")]
    nested = ["/".join(parts[:end]) for end in range(len(parts), 1, -1)]
    return (*nested, *(_HUB_KEYS if wanted.registry == HUB else (wanted.registry,)))


def _bare(key: str) -> str:
    """A key of older tools, without its scheme and API version."""
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return bare.removesuffix("/v1").removesuffix("/v2") if key.startswith("http") else bare


def _mapping(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _from_entry(entry: dict[str, Any], path: Path) -> Credential | None:
    said = {name: value for name, value in entry.items() if isinstance(value, str) and value}
    user, password = said.get("username", ""), said.get("password", "")
    if "auth" in said:
        try:
            decoded = base64.b64decode(said["auth"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise Denied(f"a login in {path} is damaged", hint="log in again") from None
        user, _, password = decoded.partition(":")
    if "registrytoken" in said:
        return Credential(source=str(path), user=user, access_token=said["registrytoken"])
    if "identitytoken" in said:
        return Credential(source=str(path), user=user, identity_token=said["identitytoken"])
    if not user:
        return None
    return Credential(source=str(path), user=user, password=password.rstrip("\0"))


def _program(helper: str) -> str:
    if "/" in helper:
        raise Denied(
            f"{helper!r} is not a credential helper", hint=f"its name must not be a path: see {config_file()}"
        )
    return f"docker-credential-{helper}"


def _from_helper(name: str, key: str) -> Credential | None:
    """Ask a credential helper; None if it has no login for the registry."""
    program = _program(name)
    try:
        done = subprocess.run(
            [program, "get"], input=key.encode(), capture_output=True, timeout=_HELPER_PATIENCE, check=False
        )
    except FileNotFoundError:
        raise Denied(
            f"the login for {key} is kept by {program}, which is not on the PATH",
            hint=f"install {program}, or remove it from {config_file()} and log in again",
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Denied(
            f"{program}, which keeps the login for {key}, does not work: {error}", hint="try it by hand"
        ) from error
    said = done.stdout.decode(errors="replace").strip()
    if done.returncode:
        if "credentials not found" in said.lower():
            return None
        # A helper reports errors on either stream; only a successful answer contains a secret.
        message = " ".join((said or done.stderr.decode(errors="replace")).split())[:300]
        raise Denied(f"{program} gives no login for {key}: {message}", hint="log in again, or try it by hand")
    try:
        answer = json.loads(said)
        user, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError):
        raise Denied(f"{program} gave no login for {key} that can be read", hint="try it by hand") from None
    if not isinstance(user, str) or not isinstance(secret, str) or not secret:
        return None
    if user == _TOKEN_USER:
        return Credential(source=program, identity_token=secret)
    return Credential(source=program, user=user, password=secret)
