"""A real registry, started for a test on a free port of loopback."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any, Self

import yaml
from tests.conftest import PATIENCE, wait_until
from tests.image.bases import Base, digest, index

from echelon.agent.ranks.launching import ports


class Registry:
    """The `distribution` registry with its data in a folder; a context manager that ends it."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        *,
        auth: dict[str, Any] | None = None,
        tls: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._program, self._auth, self._tls = program, auth, tls
        self._process: subprocess.Popen[bytes] | None = None
        self._reservation: ports.Reservation | None = None
        self.address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._reservation is not None:
            self._reservation.release()

    def start(self) -> None:
        if self._reservation is None:
            self._reservation = ports.reserve(1)  # outside the range that the system gives to whoever asks
            self._reservation.open_up()
        self.address = f"127.0.0.1:{self._reservation.ports[0]}"
        settings = {
            "version": 0.1,
            "storage": {
                "filesystem": {"rootdirectory": str(self.folder / "data")},
                "delete": {"enabled": True},
            },
            "http": {"addr": self.address} | ({"tls": self._tls} if self._tls else {}),
            "log": {"level": "error"},
        } | ({"auth": self._auth} if self._auth else {})
        (self.folder / "registry.yaml").write_text(yaml.safe_dump(settings))
        with (self.folder / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "serve", self.folder / "registry.yaml"],
                stdout=log,
                stderr=log,
                env=os.environ | {"OTEL_TRACES_EXPORTER": "none"},
            )
        wait_until(self._answers, f"the registry: see {self.folder}/registry.log")

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        accept = ", ".join(f"application/vnd.oci.image.{kind}.v1+json" for kind in ("manifest", "index"))
        try:
            connection.request("GET", path, headers={"Accept": accept})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def push(self, repository: str, tag: str, *images: Base) -> str:
        """Put images there without any of our own code, several as an index; answers the full name."""
        for image in images:
            for blob in image.blobs():
                self._put(f"/v2/{repository}/blobs/uploads/", blob, digest=digest(blob))
            self._put(
                f"/v2/{repository}/manifests/{digest(image.manifest)}", image.manifest, kind=image.media_type
            )
        if len(images) == 1:
            self._put(f"/v2/{repository}/manifests/{tag}", images[0].manifest, kind=images[0].media_type)
        else:
            kind = "application/vnd.oci.image.index.v1+json"
            self._put(f"/v2/{repository}/manifests/{tag}", index(*images), kind=kind)
        return f"{self.address}/{repository}:{tag}"

    def _put(
        self, path: str, data: bytes, *, kind: str = "application/octet-stream", digest: str = ""
    ) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            if digest:
                connection.request("POST", path)
                response = connection.getresponse()
                response.read()
                path = f"{response.headers['Location']}&digest={digest}".replace(f"http://{self.address}", "")
            connection.request("PUT", path, body=data, headers={"Content-Type": kind})
            response = connection.getresponse()
            assert response.status == 201, response.read()
        finally:
            connection.close()

    def manifest(self, repository: str, which: str) -> dict[str, Any]:
        status, body = self.get(f"/v2/{repository}/manifests/{which}")
        assert status == 200, body
        document = json.loads(body)
        assert isinstance(document, dict)
        return document

    def blob(self, repository: str, digest: str) -> bytes:
        status, body = self.get(f"/v2/{repository}/blobs/{digest}")
        assert status == 200, body
        return body

    def tags(self, repository: str) -> list[str]:
        status, body = self.get(f"/v2/{repository}/tags/list")
        return list(json.loads(body)["tags"] or []) if status == 200 else []

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "registry.log").read_text()
        host, _, port = self.address.partition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=1) as plain:
                if self._tls:
                    context = ssl.create_default_context()
                    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                    context.wrap_socket(plain).close()
                return True
        except OSError:
            return False
