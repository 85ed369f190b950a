"""A user's tokens, passwords and exec-plugin credentials, renewed when needed.

Client certificates from a kubeconfig never change and belong to `trust`; those from a plugin expire and are
handled here. All threads of a session share one `Credentials`, so that a plugin runs once for all."""

from __future__ import annotations

import base64
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from shlex import quote
from typing import IO, TYPE_CHECKING, Any

import msgspec

from echelon.engines.kubernetes.client.login.access import Access, ExecPlugin
from echelon.engines.kubernetes.client.login.trust import read_file
from echelon.errors import Denied, Unavailable
from echelon.values import frozen

if TYPE_CHECKING:
    import subprocess

_MOST_OUTPUT = 2**20  # bytes that a plugin may print
_LAST_OUTPUT = 5.0  # seconds within which the output of a plugin that has ended was read
# A credential that expires within these seconds may expire on its way to the server.
MARGIN = 10.0
# A plugin that may not prompt the user, and has not ended after these seconds, is stuck.
PLUGIN_PATIENCE = 60.0
LOGIN_AGAIN = {
    "aws": "`aws sso login`, or renew your AWS credentials",
    "aws-iam-authenticator": "`aws sso login`, or renew your AWS credentials",
    "gke-gcloud-auth-plugin": "`gcloud auth login`",
    "gcloud": "`gcloud auth login`",
    "kubelogin": "`az login`, or `kubelogin` itself",
    "doctl": "`doctl auth init`",
    "oci": "`oci session authenticate`",
    "tsh": "`tsh login`",
}


@frozen
class Proof:
    """What requests carry to authenticate, until it expires."""

    authorization: str = field(default="", repr=False)  # the header, if any
    pair: tuple[bytes, bytes] | None = field(default=None, repr=False)  # certificate and key, PEM
    expires: float | None = None


class Credentials:
    """The current proof of one user, renewed when it expires or the server rejects it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._issued: Proof | None = None

    def current(self) -> Proof:
        """The proof to use now; runs the exec plugin if its last credential has expired."""
        login = self._access.login
        if login.token_file or login.token:
            token = _token(login.token_file, login.token)
            return Proof(authorization=_bearer(token, f"the token of user {self._access.user!r}"))
        if login.username:
            encoded = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
            return Proof(authorization=f"Basic {encoded}")
        if login.plugin is None:
            return Proof()
        with self._lock:
            if self._issued is None or has_ended(self._issued, time.time()):
                self._issued = ask_plugin(login.plugin, self._access)
            return self._issued

    def renew(self, refused: Proof) -> bool:
        """After the API server rejected a proof: whether there is another to try."""
        login = self._access.login
        if login.plugin is not None and not login.token and not login.token_file:
            with self._lock:
                if self._issued is refused:  # otherwise another thread was faster
                    self._issued = None
            return True
        return self.current() != refused  # a token file may have been written anew


def has_ended(proof: Proof, now: float) -> bool:
    """Whether a proof has expired, or is about to."""
    return proof.expires is not None and now >= proof.expires - MARGIN


def log_in_again(access: Access) -> str:
    """The hint for a user whose credentials are not accepted."""
    login = access.login
    if login.plugin is not None and not login.token and not login.token_file:
        name = os.path.basename(login.plugin.command)  # noqa: PTH119 - a name, not a file of ours
        advice = LOGIN_AGAIN.get(name, f"see what `{quote(name)}` says when you run it")
        return f"log in again ({advice}): the credentials come from the exec plugin {name}"
    if login.token_file or login.token:
        return "the token may have ended: log in again, or ask for a new kubeconfig"
    if login.certificate or login.certificate_data:
        return "the client certificate may have ended: ask for a new kubeconfig"
    if login.username:
        return "check the name and password in the kubeconfig"
    return "the kubeconfig has no credentials for this context: log in to the cluster first"


def ask_plugin(plugin: ExecPlugin, access: Access) -> Proof:
    """Run an exec plugin and read the credential that it prints."""
    import shutil
    import subprocess

    name = os.path.basename(plugin.command)  # noqa: PTH119 - as above
    whose = f"the exec plugin {name} of user {access.user!r}"
    program = shutil.which(plugin.command)
    if program is None:
        hint = plugin.install_hint or f"install {name}, or add its folder to PATH"
        raise Unavailable(f"{whose} is not there", hint=hint)
    if not os.path.isabs(program):  # noqa: PTH117 - PATH names the working folder, which may be anybody's
        hint = "take . out of PATH, or write the plugin's whole path into the kubeconfig"
        raise Unavailable(f"{whose} is found in the working folder only", hint=hint)
    interactive = may_ask(plugin, _is_terminal(sys.stdin), whose)
    shown = _is_terminal(sys.stderr)  # a plugin may print a login URL there
    # The plugin's arguments may hold secrets: no message shows them.
    try:
        done = run_bounded(
            [program, *plugin.args],
            stdin=None if interactive else subprocess.DEVNULL,
            stderr=None if shown else subprocess.PIPE,
            env={
                **os.environ,
                **dict(plugin.env),
                "KUBERNETES_EXEC_INFO": plugin_info(plugin, access, interactive),
            },
            timeout=None if interactive or shown else PLUGIN_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise Denied(f"{whose} did not end within {PLUGIN_PATIENCE:g} s", hint=log_in_again(access)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its arguments cannot be passed on"
        raise Unavailable(f"{whose} cannot be started: {reason}", hint=plugin.install_hint) from None
    if len(done.stdout) > _MOST_OUTPUT:
        raise Denied(f"{whose} printed more than {_MOST_OUTPUT >> 20} MiB", hint="update the plugin")
    if done.returncode:
        said = (done.stderr or b"").decode(errors="replace").strip().splitlines()
        detail = f": {said[-1][:300]}" if said else ""
        raise Denied(f"{whose} failed with code {done.returncode}{detail}", hint=log_in_again(access))
    return read_answer(done.stdout, plugin.api_version, whose)


def run_bounded(
    words: Sequence[str],
    *,
    stdin: int | None,
    stderr: int | None,
    env: Mapping[str, str],
    timeout: float | None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program and read its output, which is cut, and the program ended, where it is too much.

    Raises subprocess.TimeoutExpired after `timeout` seconds."""
    import subprocess

    kept: dict[str, bytes] = {"out": b"", "err": b""}

    def read(name: str, stream: IO[bytes]) -> None:
        while piece := stream.read(65536):
            kept[name] += piece
            if len(kept[name]) > _MOST_OUTPUT:
                process.kill()
                return

    with subprocess.Popen(
        words, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env=env, bufsize=0
    ) as process:
        streams = [(name, each) for name, each in (("out", process.stdout), ("err", process.stderr)) if each]
        readers = [threading.Thread(target=read, args=each, daemon=True) for each in streams]
        for reader in readers:
            reader.start()
        try:
            process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        for reader in readers:
            reader.join(_LAST_OUTPUT)  # a process that it left behind may hold the pipe open
    return subprocess.CompletedProcess(words, process.returncode, kept["out"], kept["err"])


def may_ask(plugin: ExecPlugin, terminal: bool, whose: str) -> bool:
    """Whether the plugin may read from the terminal."""
    if plugin.mode == "Always" and not terminal:
        raise Denied(
            f"{whose} must ask you something, and there is no terminal",
            hint="run the command in a terminal, or use credentials that need no question",
        )
    return terminal and plugin.mode != "Never"


def plugin_info(plugin: ExecPlugin, access: Access, interactive: bool) -> str:
    """The value of KUBERNETES_EXEC_INFO for a plugin."""
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster_info:
        authority = access.authority_data
        if access.authority:
            authority = read_file(access.authority, "certificate-authority")
        described = {
            "server": access.server,
            "tls-server-name": access.server_name,
            "insecure-skip-tls-verify": not access.verify,
            "certificate-authority-data": base64.b64encode(authority).decode(),
            "proxy-url": access.proxy,
            "disable-compression": not access.compress,
            "config": plugin.config,
        }
        spec["cluster"] = {key: value for key, value in described.items() if value}
    return msgspec.json.encode(
        {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    ).decode()


def read_answer(output: bytes, api_version: str, whose: str) -> Proof:
    """A plugin's output, as a proof."""
    answer = _decoded(output)
    if not isinstance(answer, Mapping) or answer.get("kind") != "ExecCredential":
        raise Denied(f"{whose} printed no ExecCredential", hint="update the plugin")
    if answer.get("apiVersion") != api_version:
        raise Denied(
            f"{whose} answers with {answer.get('apiVersion')}, and the kubeconfig says {api_version}",
            hint="write the kubeconfig entry again with the plugin's own command, or update the plugin",
        )
    given = answer.get("status")
    status = given if isinstance(given, Mapping) else {}
    token = str(status.get("token") or "")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if bool(certificate) != bool(key):
        raise Denied(f"{whose} gave only one of certificate and key", hint="update the plugin")
    if not token and not certificate:
        raise Denied(f"{whose} gave no credentials", hint="log in again with the plugin's own command")
    return Proof(
        authorization=_bearer(token, f"the token of {whose}") if token else "",
        pair=(str(certificate).encode(), str(key).encode()) if certificate else None,
        expires=_moment(status.get("expirationTimestamp"), whose),
    )


def _decoded(output: bytes) -> object:
    try:
        return msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _moment(text: object, whose: str) -> float | None:
    from datetime import datetime

    if not text:
        return None
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        raise Denied(
            f"{whose} gave an expirationTimestamp that is no time", hint="update the plugin"
        ) from None


def _bearer(token: str, whose: str) -> str:
    # The HTTP library would refuse such a header with a message that quotes the secret.
    if not token.isascii() or not token.isprintable():
        raise Denied(f"{whose} holds characters that no token has", hint="log in again, or ask for a new one")
    return f"Bearer {token}"


def _token(path: str, otherwise: str) -> str:
    if not path:
        return otherwise
    try:
        return read_file(path, "token file").decode().strip()
    except (Unavailable, UnicodeDecodeError) as error:
        if otherwise:
            return otherwise
        reason = error.message if isinstance(error, Unavailable) else f"the token file {path} is not text"
        raise Unavailable(reason, hint="log in again") from None


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]
    except ValueError:  # closed
        return False
