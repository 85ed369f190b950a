"""What the tests of images share: real registries on loopback, a token service, somebody on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from testbed.fixtures import give_up
from tests.image.meddler import Meddler
from tests.image.registries import Registry
from tests.image.tokens import TokenService

from echelon.cli import main
from testbed import programs


@pytest.fixture(scope="session")
def registry_program() -> Path:
    """The real registry, built from source once if it is not in the cache."""
    if not programs.is_built("registry") and shutil.which("go") is None:
        give_up("the registry is built with Go, and Go is not installed")
    return programs.program("registry")


@pytest.fixture(scope="session")
def open_registry(registry_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that lets everybody do everything; tests keep to repositories of their own."""
    with Registry(registry_program, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def start_registry(registry_program: Path, tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    """`start_registry(auth={...}, tls=...)`: a registry of the test's own."""
    with ExitStack() as stack:

        def start(**settings: object) -> Registry:
            folder = tmp_path / f"registry-{len(list(tmp_path.glob('registry-*')))}"
            folder.mkdir()
            return stack.enter_context(Registry(registry_program, folder, **settings))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def token_service(tmp_path: Path) -> Iterator[TokenService]:
    """Gives out tokens that a registry believes."""
    with TokenService(tmp_path) as running:
        yield running


@pytest.fixture
def meddler(open_registry: Registry) -> Iterator[Meddler]:
    """Somebody between us and the open registry."""
    with Meddler(open_registry.address) as running:
        yield running


@pytest.fixture
def call(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line in this process."""
    before = signal.getsignal(signal.SIGTERM)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        try:
            code = main.call(list(words))
        finally:
            signal.signal(signal.SIGTERM, before)
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)

    return call


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No logins of whoever runs the tests; the folder in which a test puts its own."""
    folder = tmp_path / "docker"
    folder.mkdir()
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "ECHELON_ON"):
        monkeypatch.delenv(name, raising=False)
    for name in [each for each in os.environ if each.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with something of everything."""
    root = tmp_path / "project"
    (root / "package").mkdir(parents=True)
    (root / "pyproject.toml").write_text("")
    (root / "train.py").write_text("import package\n\nprint(package.GREETING)\n")
    (root / "package" / "__init__.py").write_text("GREETING = 'hello'\n")
    (root / "run.sh").write_text("#!/bin/sh\nexec python3 train.py\n")
    (root / "run.sh").chmod(0o755)
    (root / ".gitignore").write_text("secret.txt\n")
    (root / "secret.txt").write_text("not for the image")
    return root
