"""A token service as registries have one: it knows users, what each may do, and signs what it says."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

SERVICE, ISSUER = "test-registry", "test-issuer"


class TokenService:
    """`users` is name -> (password, {repository: actions}); the user "" is anybody."""

    def __init__(self, folder: Path) -> None:
        self.users: dict[str, tuple[str, dict[str, set[str]]]] = {}
        self.identity_tokens: dict[str, str] = {}  # token -> user
        self.lifetime = 300
        self.requests: list[tuple[str, list[str]]] = []  # who asked, and for which scopes
        self._folder = folder
        self._key = folder / "token.key"
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        openssl = ["openssl", "genrsa", "-out", str(self._key), "2048"]
        subprocess.run(openssl, check=True, capture_output=True)
        service = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                header = self.headers.get("Authorization", "")
                user, _, password = (
                    base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
                    if header
                    else ("", "", "")
                )
                known = user in service.users and service.users[user][0] == password
                self._answer(user if known else None, query.get("scope", []))

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                assert form["grant_type"] == ["refresh_token"]
                user = service.identity_tokens.get(form["refresh_token"][0])
                self._answer(user, form.get("scope", [""])[0].split())

            def _answer(self, user: str | None, scopes: list[str]) -> None:
                service.requests.append((user if user is not None else "?", scopes))
                if user is None:
                    body, status = {"errors": [{"code": "UNAUTHORIZED", "message": "wrong password"}]}, 401
                else:
                    body, status = {"token": service.token(user, scopes)}, 200  # type: ignore[dict-item]
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def realm(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def auth(self) -> dict[str, Any]:
        """What a registry must be told to believe this service."""
        keys = self._folder / "keys.json"
        modulus = subprocess.run(
            ["openssl", "rsa", "-in", self._key, "-noout", "-modulus"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        number = bytes.fromhex(modulus.strip().partition("=")[2])
        key = {"kty": "RSA", "kid": "test", "alg": "RS256", "use": "sig", "n": _base64(number), "e": "AQAB"}
        keys.write_text(json.dumps({"keys": [key]}))
        return {"token": {"realm": self.realm, "service": SERVICE, "issuer": ISSUER, "jwks": str(keys)}}

    def token(self, user: str, scopes: list[str]) -> str:
        rights = self.users[user][1]
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            granted = sorted(rights.get(name, set()) & set(actions.split(",")))
            access.append({"type": kind, "name": name, "actions": granted})
        now = int(time.time())
        claims = {
            "iss": ISSUER, "aud": SERVICE, "sub": user, "access": access,
            "nbf": now - 60, "iat": now, "exp": now + self.lifetime,
        }  # fmt: skip
        parts = [{"alg": "RS256", "typ": "JWT", "kid": "test"}, claims]
        text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self._key],
            input=text.encode(),
            check=True,
            capture_output=True,
        )
        return f"{text}.{_base64(signed.stdout)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
