"""A real Jupyter server with the panel's extension, as the wheel installs it, for tests."""

from __future__ import annotations

import http.cookiejar
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE, wait_until

import echelon.lab

FRONT = Path(echelon.lab.__file__).parent / "front"
TOKEN = "a-token-of-the-tests"


@dataclass
class Served:
    """A server that answers."""

    origin: str
    root: Path
    said: Path

    def ask(
        self, what: str, body: object, *, token: str = TOKEN, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Post to an address of the extension; returns the status and what was answered."""
        given = {"Authorization": f"token {token}", "Content-Type": "application/json", **(headers or {})}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.origin}/echelon/{what}", data, given)
        if not token:
            request.remove_header("Authorization")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def cookies(self) -> str:
        """The cookies of a browser that has opened the server's address with the token."""
        jar = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        for path in ("login", f"api/me?token={TOKEN}"):
            opener.open(f"{self.origin}/{path}", timeout=PATIENCE).close()
        return "; ".join(f"{each.name}={each.value}" for each in jar)


def _free_port() -> int:
    """Jupyter takes another one if somebody was quicker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def install(prefix: Path) -> None:
    """Put the files where the wheel puts them."""
    shutil.copytree(FRONT, prefix / "share/jupyter/labextensions/echelon")
    config = prefix / "etc/jupyter/jupyter_server_config.d"
    config.mkdir(parents=True)
    (prefix / "share/jupyter/labextensions/echelon/echelon.json").rename(config / "echelon.json")


@contextmanager
def jupyter(
    root: Path, scratch: Path, module: str = "jupyter_server", *more: str, theme: str = "JupyterLab Light"
) -> Iterator[Served]:
    """Start a server whose notebooks are below `root`; its module says which one, `more` are words for it.
    ECHELON_TEST_JUPYTER names the Python that has it, where that is another one."""
    scratch.mkdir()
    install(scratch / "prefix")
    runtime, said = scratch / "runtime", scratch / "jupyter-said"
    runtime.mkdir()
    environment = {
        **os.environ,
        "JUPYTER_PATH": str(scratch / "prefix/share/jupyter"),
        "JUPYTER_CONFIG_PATH": str(scratch / "prefix/etc/jupyter"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        **{
            name: str(scratch / name.lower())
            for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR")
        },
        "JUPYTERLAB_WORKSPACES_DIR": str(scratch / "workspaces"),
        "PYTHONPATH": str(Path(echelon.lab.__file__).parents[2]),
    }
    settings = scratch / "jupyterlab_settings_dir/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    # The question about news would cover a corner.
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": theme}))
    python = os.environ.get("ECHELON_TEST_JUPYTER") or sys.executable
    words = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={_free_port()}",
        f"--ServerApp.root_dir={root}",
    ]
    with said.open("wb") as out:
        process = subprocess.Popen(
            [python, "-m", module, *words, *more, f"--IdentityProvider.token={TOKEN}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            cwd=root,
        )
    try:
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            assert process.poll() is None, said.read_text()
            with suppress(ValueError):  # it is being written
                found[:] = [json.loads(path.read_text()) for path in runtime.glob("jpserver-*.json")]
            return bool(found) and _answers(found[0]["port"])

        wait_until(is_there, "the Jupyter server to answer")
        yield Served(origin=f"http://127.0.0.1:{found[0]['port']}", root=root, said=said)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)
