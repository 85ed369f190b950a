"""The TLS side of an `Access`: the authority to trust and the client certificate to present.

Python's ssl module reads keys from files only. A key from a kubeconfig or a plugin passes through a file in
memory, or, where the system has none, through a private file that is removed before the connection opens."""

from __future__ import annotations

import contextlib
import errno
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import Unavailable

_LARGEST = 4 * 2**20  # bytes of a certificate, a key or a token


def make_context(access: Access, pair: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
    """The TLS context for connections to this server; `pair` is a certificate and key from a plugin."""
    context = _trusting(access)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if pair is None:
        pair = _own_pair(access)
    if pair is not None:
        _show(context, pair, access)
    return context


def _trusting(access: Access) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.authority_data or access.authority:
        data = access.authority_data or read_file(access.authority, "certificate-authority")
        try:
            context.load_verify_locations(cadata=data.decode("ascii", errors="replace"))
        except (ssl.SSLError, ValueError):
            raise Unavailable(
                f"the certificate-authority of cluster {access.cluster!r} is not a certificate",
                hint="ask for a new kubeconfig",
            ) from None
        # As kubectl does: a named certificate is trusted, also if it is not the root of its chain.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    elif sys.platform == "darwin":
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context.load_default_certs()
    return context


def _own_pair(access: Access) -> tuple[bytes, bytes] | None:
    login = access.login
    if not login.certificate_data and not login.certificate:
        return None
    certificate = login.certificate_data or read_file(login.certificate, "client-certificate")
    return certificate, login.key_data or read_file(login.key, "client-key")


def _show(context: ssl.SSLContext, pair: tuple[bytes, bytes], access: Access) -> None:
    try:
        with readable(b"\n".join(pair)) as path:
            # Without the callback OpenSSL would prompt for a password on the terminal.
            context.load_cert_chain(path, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise Unavailable(
            f"the client certificate and key of user {access.user!r} do not fit, or the key has a password",
            hint="ask for a new kubeconfig",
        ) from None


@contextlib.contextmanager
def readable(secret: bytes) -> Iterator[str]:
    """A path at which `secret` can be read, by this user only, while the block runs."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("echelon", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, secret)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    descriptor, path = tempfile.mkstemp(prefix="echelon-")  # readable by its owner alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
        yield path
    finally:
        Path(path).unlink()


def read_file(path: str, what: str) -> bytes:
    """The content of a file that the kubeconfig names: no device, no pipe, and of bounded size."""
    try:
        if not Path(path).is_file():
            reason = "it is not a file" if Path(path).exists() else os.strerror(errno.ENOENT)
            raise Unavailable(f"the {what} {path} cannot be read: {reason}", hint="the kubeconfig names it")
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a path"
        raise Unavailable(
            f"the {what} {path} cannot be read: {reason}", hint="the kubeconfig names it"
        ) from None
    if len(content) > _LARGEST:
        raise Unavailable(
            f"the {what} {path} is larger than {_LARGEST >> 20} MiB", hint="the kubeconfig names it"
        )
    return content
