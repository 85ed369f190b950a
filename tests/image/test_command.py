"""`echelon image build` as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.engines.kubernetes.typed import typed
from tests.image.bases import Base, digest, write_layout
from tests.image.registries import Registry

from echelon.cli.commands.image import build
from echelon.engines.kubernetes.abilities.cluster import read_platforms
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.errors import Denied, Unavailable
from echelon.image.oci import choose_platform
from echelon.image.wheels import LIBC

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def base(tmp_path: Path) -> str:
    """A base that needs no registry."""
    return f"oci-archive:{write_layout(tmp_path / 'base.tar', Base(), Base(architecture='arm64'))}"


def test_the_result_is_on_standard_output_and_the_rest_is_not(call: Call, base: str, project: Path) -> None:
    done = call("image", "build", str(project / "package"), "--base", base, "--to", "image.tar")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "image.tar\n"
    assert "project: a layer of" in done.stderr
    again = call("image", "build", str(project), "--base", base, "--to", "image.tar", "-o", "json")
    found = json.loads(again.stdout)
    assert found["archive"] == "image.tar"
    assert [layer["origin"] for layer in found["layers"]] == ["base", "project"]
    assert found["digest"].startswith("sha256:")


@pytest.mark.slow
def test_a_pushed_image_is_named_by_its_digest(
    call: Call, base: str, project: Path, open_registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    name = f"{open_registry.address}/command/pushed"
    done = call("image", "build", "--base", base, "--push", f"{name}:1")
    assert done.returncode == 0, done.stderr
    pushed = done.stdout.strip()
    assert pushed.startswith(f"{name}:1@sha256:")
    status, manifest = open_registry.get(f"/v2/command/pushed/manifests/{pushed.partition('@')[2]}")
    assert status == 200
    assert digest(manifest) == pushed.partition("@")[2]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "Missing option '--base'"),
        (["--base", "python"], 110, "push: '' is missing"),
        (["--base", "UPPER", "--to", "x.tar"], 110, "base: 'UPPER' is not the name"),
        (["--base", "python", "--to", "x.tar", "--platform", "mars"], 110, "platform: 'mars'"),
        (["--base", "127.0.0.1:1/x", "--to", "x.tar"], 120, "127.0.0.1:1 does not answer"),
        (["--base", "oci-archive:gone.tar", "--to", "x.tar"], 119, "there is no archive gone.tar"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.setattr("echelon.image.registry.transport.time.sleep", lambda _seconds: None)
    done = call("image", "build", *words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_default_of_the_c_library_is_said_once() -> None:
    (option,) = (param for param in build.params if param.name == "libc")
    assert option.default == LIBC  # written out in the command, so that --help imports nothing


class Nodes:
    """The client of a cluster that has nodes of these kinds, or says no."""

    def __init__(self, *kinds: tuple[str, str], denied: bool = False) -> None:
        self._nodes = [
            {
                "metadata": {"name": "a"},
                "status": {"nodeInfo": {"operatingSystem": os_, "architecture": kind}},
            }
            for os_, kind in kinds
        ]
        self._denied = denied

    def list_shapes(self, _kind: str, shape: type[Any]) -> list[Any]:
        if self._denied:
            raise Denied("you may not list nodes", hint="ask the administrator")
        return typed(shape, self._nodes)


def test_the_platform_is_asked_of_the_cluster(
    call: Call, base: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    asked: list[object] = []

    def connect(engine: KubernetesEngine) -> Nodes:
        asked.append(engine._place.context)
        return Nodes(("linux", "arm64"))

    monkeypatch.setattr(KubernetesEngine, "api", property(connect))
    words = ("image", "build", "--base", base, "--to", "image.tar", "-o", "json")
    for where in (["--on", "k8s"], ["--context", "far"]):
        assert json.loads(call(*words, *where).stdout)["platform"] == "linux/arm64"
    given = call(*words, "--on", "k8s", "--platform", "linux/amd64")
    assert json.loads(given.stdout)["platform"] == "linux/amd64"
    assert asked == [None, "far"]


def test_nodes_of_one_kind_are_the_platform() -> None:
    found = read_platforms(Nodes(("linux", "arm64"), ("linux", "arm64"), ("windows", "amd64")))  # type: ignore[arg-type]
    assert found == {"linux/arm64", "windows/amd64"}
    assert str(choose_platform(found)) == "linux/arm64"


@pytest.mark.parametrize("kinds", [[], ["windows/amd64"], ["linux/amd64", "linux/arm64"]])
def test_nodes_of_several_kinds_are_a_question(kinds: list[str]) -> None:
    with pytest.raises(Unavailable) as caught:
        choose_platform(frozenset(kinds))
    assert "--platform" in caught.value.hint


def test_who_may_not_list_nodes_says_the_platform() -> None:
    with pytest.raises(Denied, match="you may not list nodes") as caught:
        read_platforms(Nodes(denied=True))  # type: ignore[arg-type]
    assert "--platform" in caught.value.hint


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_leaves_nothing(
    tmp_path: Path, base: str, project: Path, number: signal.Signals
) -> None:
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    work.mkdir()
    scratch.mkdir()
    (tmp_path / "bin").mkdir()
    # An installer that never ends, so that the signal comes in the middle.
    (tmp_path / "bin" / "uv").write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nexec sleep 600\n")
    (tmp_path / "bin" / "uv").chmod(0o755)
    words = ["image", "build", str(project), "--base", base, "--to", str(work / "image.tar"), "--pip", "x"]
    environment = os.environ | {"TMPDIR": str(scratch), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    process = subprocess.Popen([sys.executable, "-m", "echelon.cli.main", *words], env=environment)
    try:
        wait_until((tmp_path / "begun").exists, "the installer to begin")
        process.send_signal(number)
        assert process.wait(PATIENCE) == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    finally:
        process.kill()
        process.wait()
    assert list(scratch.iterdir()) == []
    assert list(work.iterdir()) == []


def test_the_command_costs_nothing_before_it_is_needed() -> None:
    code = (
        "import sys; from echelon.cli.main import call; code = call(['image', 'build', '--help']);"
        "dear = {'httpx2', 'msgspec', 'yaml', 'rich', 'ssl', 'asyncio', 'echelon.image.build'};"
        "print(sorted(dear & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
