"""Why an image cannot be pulled, from the messages of container runtimes and registries. Pure.

The messages are many and change with versions: each cause is recognised by what its message always contains,
and an unknown message is passed on unchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence

from echelon.engines.kubernetes.diagnose.trouble import Kind
from echelon.engines.kubernetes.render.image import DEFAULTS

# The order matters: a registry may answer "not found or no access" to a request without a login, and an
# unreachable login server is not a refused login.
_UNREACHABLE = re.compile(
    r"no such host|connection refused|i/o timeout|timeout exceeded|deadline exceeded|network is unreachable"
    r"|no route to host|connection reset|TLS handshake|x509:|tls: |gave HTTP response to HTTPS client"
    r"|server misbehaving|registry is unavailable"
    r"|(?:status|code)[^,;]{0,40}\b(?:429|5\d\d)\b|toomanyrequests|unexpected EOF",
    re.IGNORECASE,
)
_HIDDEN = re.compile(r"repository does not exist or may require|may require .?docker login", re.IGNORECASE)
_LOGIN = re.compile(
    r"\b40[13]\b|unauthorized|authorization failed|authentication required|access denied|denied:|forbidden"
    r"|no basic auth credentials|insufficient_scope",
    re.IGNORECASE,
)
_MISSING = re.compile(r"not found|manifest unknown|name unknown|\b404\b|no such image", re.IGNORECASE)
_PLATFORM = re.compile(r"no match for platform|no matching manifest|image operating system", re.IGNORECASE)
_FULL = re.compile(r"no space left on device", re.IGNORECASE)
_LIMIT = re.compile(r"toomanyrequests|\b429\b", re.IGNORECASE)
_NAMESERVER = re.compile(r"(?<=\S) on \S+:53(?=: )")
_PREFIXES = (
    re.compile(r'^(?:Back-off pulling image "[^"]*": |ErrImagePull: |Failed to pull image "[^"]*": )'),
    re.compile(r"^rpc error: code = \w+ desc = "),
    re.compile(r'^failed to pull and unpack image "[^"]*": '),
    re.compile(r'^failed to resolve (?:reference|image)(?: "[^"]*")?: '),
    re.compile(r'^failed to do request: (?:Head|Get) "[^"]*": (?:dial tcp: )?'),
)


def read_pull_error(
    image: str, message: str, secrets: Sequence[str], lost_secrets: str
) -> tuple[Kind, str, str]:
    """The kind of a pull error, with a sentence and a hint.

    `secrets` are the pull secrets that the pod names, `lost_secrets` those that the kubelet did not find."""
    why = strip(message)
    if image in DEFAULTS:  # which the user has not named: naming another is the way out, waiting is not
        text = f"image {image}, the default, cannot be pulled: {why or 'no reason was given'}"
        return "default-image", text, "name one that the nodes can pull with --image"
    make = (
        "`kubectl create secret docker-registry NAME --docker-server=... --docker-username=...`"
        " makes a pull secret; name it with --pull-secret"
    )
    if lost_secrets and not _UNREACHABLE.search(message):
        return "login", f"image {image} cannot be pulled: pull secret {lost_secrets} does not exist", make
    if _FULL.search(message):
        return "registry", f"image {image} cannot be pulled: the node's disk is full", "free some of it"
    if _PLATFORM.search(message):
        return (
            "image",
            f"image {image} is not made for the node's processor",
            "use one that is (or a node that fits, with --node-selector kubernetes.io/arch=amd64)",
        )
    if _UNREACHABLE.search(message):
        if _LIMIT.search(message):
            return "registry", f"the registry of image {image} allows no more pulls for now", make
        return (
            "registry",
            f"the registry of image {image} cannot be reached: {why}",
            "check the registry's name in --image; the nodes must be able to reach it",
        )
    if _HIDDEN.search(message) and "no basic auth credentials" not in message:
        return "login", f"image {image} does not exist, or its registry wants a login", make
    if _LOGIN.search(message):
        named = f"refuses the login in pull secret {', '.join(secrets)}" if secrets else "wants a login"
        return "login", f"image {image} cannot be pulled: its registry {named}", make
    if _MISSING.search(message):
        return "image", f"image {image} does not exist", "check its name and tag, and give it with --image"
    return "image", f"image {image} cannot be pulled: {why or 'no reason was given'}", "check --image"


def strip(message: str) -> str:
    """The specific part of a pull error, without the prefixes that every layer adds."""
    changed = True
    while changed:
        changed = False
        for prefix in _PREFIXES:
            shorter = prefix.sub("", message)
            changed = changed or shorter != message
            message = shorter
    return _NAMESERVER.sub("", message)
