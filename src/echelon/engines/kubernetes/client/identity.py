"""Who the cluster takes us for: the user name of our credentials, which owns what we make.

The name of the local user says less: in containers everybody is root."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from echelon.engines.kubernetes.client.beside import beside
from echelon.errors import EchelonError

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api


def user_name(api: Api) -> str:
    """The user name that the cluster sees; "" where it is too old to report it, or must not."""
    answer = api.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")


def known_as(api: Api) -> str:
    """The same; "" also where there is no answer."""
    try:
        return user_name(api)
    except EchelonError:
        return ""  # whatever it is, the next request tells it


def ask(api: Api) -> Callable[[], str]:
    """Ask for the user name while other requests are under way; the result waits for the answer, and is ""
    where there is none.
    """
    return beside(lambda: known_as(api))
