"""A registry's refusal as an error that a user can act on: the missing right, and how to log in. Pure."""

from __future__ import annotations

import json
from shlex import quote

from echelon.errors import Denied, EchelonError, Refused, Unavailable
from echelon.image.reference import HUB, Reference
from echelon.image.registry.credentials import Credential

_MEANING = {"pull": "read", "push": "write to"}


def registry_message(body: bytes) -> str:
    """The registry's own message, on one line and without control characters."""
    try:
        errors = json.loads(body)["errors"]
        said = "; ".join(
            ": ".join(str(each[key]) for key in ("code", "message") if each.get(key)) for each in errors
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        said = ""
    printable = "".join(letter if letter.isprintable() else " " for letter in said)
    return " ".join(printable.split())[:300]


def refusal(
    status: int, message: str, *, right: str, image: Reference, credential: Credential | None
) -> EchelonError:
    """The error for a response; `right` is what the request needed: pull or push."""
    place = f"{image.registry}/{image.repository}"
    said = f" (the registry says: {message})" if message else ""
    if status == 401 and credential is None:
        return Denied(
            f"{image.registry} wants a login to {_MEANING[right]} {image.repository}: you are not logged"
            f" in there, and need the right to {right}{said}",
            hint=log_in(image.registry),
        )
    if status == 401:
        return Denied(
            f"{image.registry} does not accept the login{_of(credential)}, or it lacks the right to {right}"
            f" {image.repository}{said}",
            hint=f"{log_in(image.registry)} as a user who may {right} {place}",
        )
    if status == 403:
        who = f"the login{_of(credential)}" if credential else "a user who is not logged in"
        return Denied(
            f"{who} lacks the right to {right} {place}{said}",
            hint=f"ask the registry's administrator for it, or {log_in(image.registry)} as a user who has it",
        )
    if status == 404 and right == "push":
        return Unavailable(
            f"{image.registry} has no repository {image.repository} to push to{said}",
            hint="create it there first, or check its name",
        )
    if status == 404:
        return Unavailable(f"there is no image {image}{said}", hint="check its name and tag")
    if status in (405, 415):
        return Refused(
            f"{image.registry} does not take images like this: status {status}{said}",
            hint="is it a registry that one can push to, and not a cache or a mirror?",
        )
    if status == 413:
        return Refused(
            f"{image.registry} finds a layer too large{said}",
            hint="a proxy before it may limit the size of uploads",
        )
    return Refused(
        f"{image.registry} answered with status {status}{said}",
        hint="is it an image registry?",
    )


def token_refusal(
    status: int, message: str, *, right: str, image: Reference, credential: Credential | None
) -> EchelonError:
    """The error when the token service gave no token."""
    if status in (400, 401, 403):
        return refusal(401, message, right=right, image=image, credential=credential)
    return refusal(status if status != 404 else 400, message, right=right, image=image, credential=credential)


def log_in(registry: str) -> str:
    """The command that stores a login where echelon finds it."""
    name = "" if registry == HUB else f" {quote(registry)}"
    return f"log in with `docker login{name}` or `podman login {quote(registry)}`"


def _of(credential: Credential | None) -> str:
    if credential is None:
        return ""
    who = f" of {credential.user}" if credential.user else ""
    return f"{who} from {credential.source}"
