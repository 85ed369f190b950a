"""The API server over one kept connection, for the testbed's own loops: kubectl would take 0.1 s a call."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from testbed.certificates import AUTHORITY, client_certificate
from testbed.network import GATEWAY
from testbed.patience import FACTOR

Object = dict[str, Any]
SILENCE = 60.0 * FACTOR  # seconds; to delete a thousand nodes with one request takes half a minute when busy


class Api:
    """One user's connection; reopened after an outage of the API server."""

    def __init__(self, user: str) -> None:
        certificate, key = client_certificate(user, ["system:masters", "testbed:components"])
        self._context = ssl.create_default_context(cafile=str(AUTHORITY))
        self._context.load_cert_chain(certificate, key)
        self._connection = http.client.HTTPSConnection(GATEWAY, 6443, timeout=SILENCE, context=self._context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Object]:
        """One request: its status and object; a lost connection is an OSError, and the next call connects."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body)
        try:
            self._connection.request(
                method, path, body=content, headers={"Content-Type": kind, "Accept": "application/json"}
            )
            response = self._connection.getresponse()
            answer: Object = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise ConnectionError(f"the API server did not answer {method} {path}: {error}") from error
        return response.status, answer

    def items(self, path: str) -> list[Object]:
        """The objects of a list."""
        return list(self.call("GET", path)[1].get("items") or [])
