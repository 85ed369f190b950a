"""Handing a Dockerfile over: the right words for each builder, and a plain answer where there is none."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.errors import InvalidJob, Unavailable
from echelon.image.dockerfile import Handover, commands, find_builder, hand_over
from echelon.image.oci import parse_platform

WHAT = Handover(
    dockerfile=Path("/src/docker/My.Dockerfile"),
    context=Path("/src"),
    name="a.io/me/x:1",
    push=True,
    to=Path("/out/x.tar"),
    platform=parse_platform("linux/arm64"),
)
# A stand-in for a builder that these tests cannot have: it writes down what it was told.
STAND_IN = """#!/bin/sh
{ printf '%s\\n' "$0" "$@"; echo END; } >> LOG
echo "words of the builder"
exit CODE
"""


@pytest.fixture
def builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put stand-ins on an otherwise empty PATH; answers their log."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat"):
        (folder / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(folder))

    def install(*names: str, code: int = 0) -> Path:
        for name in names:
            script = STAND_IN.replace("LOG", str(tmp_path / "log")).replace("CODE", str(code))
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)
        return tmp_path / "log"

    return install


def calls(log: Path) -> list[list[str]]:
    calls_ = [each.strip().splitlines() for each in log.read_text().split("END\n") if each.strip()]
    return [[Path(words[0]).name, *words[1:]] for words in calls_]


def test_podman() -> None:
    assert commands("podman", WHAT) == [
        ["podman", "build", "--file", "/src/docker/My.Dockerfile", "--tag", "a.io/me/x:1",
         "--platform", "linux/arm64", "/src"],
        ["podman", "save", "--format", "oci-archive", "--output", "/out/x.tar", "a.io/me/x:1"],
        ["podman", "push", "a.io/me/x:1"],
    ]  # fmt: skip


def test_docker() -> None:
    assert commands("docker", replace(WHAT, platform=None, to=None)) == [
        ["docker", "build", "--file", "/src/docker/My.Dockerfile", "--tag", "a.io/me/x:1", "/src"],
        ["docker", "push", "a.io/me/x:1"],
    ]
    assert commands("docker", replace(WHAT, push=False))[1:] == [
        ["docker", "save", "--output", "/out/x.tar", "a.io/me/x:1"]
    ]


def test_buildctl() -> None:
    (words,) = commands("buildctl", WHAT)
    assert words == [
        "buildctl", "build", "--frontend", "dockerfile.v0", "--local", "context=/src",
        "--local", "dockerfile=/src/docker", "--opt", "filename=My.Dockerfile",
        "--opt", "platform=linux/arm64",
        "--output", "type=oci,dest=/out/x.tar,name=a.io/me/x:1",
        "--output", "type=image,name=a.io/me/x:1,push=true",
    ]  # fmt: skip


def test_a_comma_in_a_path_is_no_second_option() -> None:
    (words,) = commands("buildctl", replace(WHAT, to=Path('/out/a,type="local".tar')))
    option = words[words.index("--output") + 1]
    assert next(csv.reader([option])) == ["type=oci", 'dest=/out/a,type="local".tar', "name=a.io/me/x:1"]


def test_the_first_that_answers_is_taken(builders: Callable[..., Path]) -> None:
    builders("docker")
    assert find_builder() == "docker"
    builders("podman")
    assert find_builder() == "podman"
    builders("buildctl")
    assert find_builder() == "buildctl"
    builders("buildctl", "podman", code=1)
    assert find_builder() == "docker"


def test_without_a_builder_it_says_what_each_lacks(builders: Callable[..., Path]) -> None:
    builders("docker", code=1)
    with pytest.raises(Unavailable) as caught:
        find_builder()
    assert "buildctl is not installed" in caught.value.message
    assert "podman is not installed" in caught.value.message
    assert "docker is installed but does not answer" in caught.value.message
    assert "--base" in caught.value.hint


def test_the_builder_does_the_work(
    builders: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = builders("podman")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM scratch\n")
    assert hand_over(replace(WHAT, dockerfile=dockerfile)) == "podman"
    assert [words[1] for words in calls(log)] == ["info", "build", "save", "push"]
    said = capfd.readouterr()
    assert (said.out, said.err.count("words of the builder")) == ("", 3)


def test_a_builder_that_fails_is_believed(builders: Callable[..., Path], tmp_path: Path) -> None:
    log = builders("podman")
    script = tmp_path / "bin" / "podman"
    script.write_text(script.read_text().replace("exit 0", 'test "$1" != build || exit 3'))
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.touch()
    with pytest.raises(Unavailable, match="`podman build` failed with exit code 3") as caught:
        hand_over(replace(WHAT, dockerfile=dockerfile))
    assert "log in" in caught.value.hint
    assert [words[1] for words in calls(log)] == ["info", "build"]


def test_a_dockerfile_that_is_not_there() -> None:
    with pytest.raises(InvalidJob, match="is not a Dockerfile"):
        hand_over(WHAT)


def test_the_command(
    builders: Callable[..., Path],
    call: Callable[..., object],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = builders("docker")
    monkeypatch.chdir(project)
    (project / "Dockerfile").touch()
    done = call("image", "build", "-f", "Dockerfile", "--push", "me/x:1", "-o", "json")
    assert json.loads(done.stdout) == {"image": "docker.io/me/x:1", "builder": "docker", "archive": ""}  # type: ignore[attr-defined]
    assert calls(log)[1:] == commands(
        "docker",
        Handover(dockerfile=project / "Dockerfile", context=project, name="docker.io/me/x:1", push=True),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--base", "x", "--push", "x"], "--base cannot go with -f"),
        (["--pip", "x", "--include", "y", "--push", "x"], "--include, --pip cannot go with -f"),
        ([], "Say --push REF"),
        (["--to", "x.tar"], "Say --push REF"),
    ],
)
def test_what_does_not_go_with_a_dockerfile(call: Callable[..., object], words: list[str], said: str) -> None:
    done = call("image", "build", "-f", "Dockerfile", *words)
    assert done.returncode == 2  # type: ignore[attr-defined]
    assert said in done.stderr  # type: ignore[attr-defined]
