"""A real MLflow server, from PyPI, in a folder of its own: its needs are not the project's.

It is one that a test starts and stops, with a database in a folder of the test's own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from testbed.locking import held
from testbed.paths import CACHE
from testbed.patience import FACTOR

VERSION = "3.17.2"
_INSTALL = 600.0  # seconds that the installation may take
_START = 300.0 * FACTOR  # and a server, which imports much


class NoMLflow(Exception):
    """It cannot be installed here; the text is why."""


def folder() -> Path:
    """A folder for PYTHONPATH with MLflow; installed if it is not in the cache. Raises NoMLflow."""
    target = CACHE / "mlflow" / f"{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    if target.is_dir():
        return target
    with held(CACHE / "mlflow" / ".lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".mlflow-") as scratch:
                made = Path(scratch, "made")
                words = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(made)]
                try:
                    done = subprocess.run(
                        [*words, f"mlflow=={VERSION}"],
                        capture_output=True,
                        text=True,
                        timeout=_INSTALL,
                        check=False,
                    )
                except (OSError, subprocess.TimeoutExpired) as error:
                    raise NoMLflow(f"MLflow cannot be installed: {error}") from error
                if done.returncode:
                    last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
                    raise NoMLflow(f"MLflow cannot be installed: {last}")
                made.replace(target)
    return target


class Server:
    """An MLflow server on a port of its own, which it has again when it is started again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = ["--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        words += ["--backend-store-uri", f"sqlite:///{self._home}/mlflow.db"]
        words += ["--default-artifact-root", str(self._home / "artifacts")]
        environment = os.environ | {"PYTHONPATH": str(folder()), "MLFLOW_DISABLE_TELEMETRY": "true"}
        environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # it starts processes of its own
        with (self._home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=self._home,
                start_new_session=True,
            )
        until = time.monotonic() + _START
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise AssertionError((self._home / "server.log").read_text()[-3000:])
            time.sleep(0.5)

    def stop(self) -> None:
        """End it and all of its processes at once, as a power cut does."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:  # noqa: S310 - our own
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
