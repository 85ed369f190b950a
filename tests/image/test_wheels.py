"""Packages for another machine, installed by the real uv and the real pip, and tidied up."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.image.wheel_files import make_wheel

from echelon.errors import InvalidJob, Unavailable
from echelon.image import wheels
from echelon.image.layer import list_tree, packed
from echelon.image.oci import parse_platform
from echelon.image.wheels import PackageSet, arguments, check_packages, check_python, find_tool, install, tidy

pytestmark = pytest.mark.slow  # pip takes its time

ARM = parse_platform("linux/arm64")
Installing = Callable[..., Path]


def wanted(*packages: str, **more: object) -> PackageSet:
    settings: dict[str, object] = {
        "packages": packages,
        "requirements": (),
        "platform": ARM,
        "python": "3.12",
    }
    return PackageSet(**(settings | more))  # type: ignore[arg-type]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that pip and uv know."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in [each for each in os.environ if each.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(folder))):
        monkeypatch.setenv(f"PIP_{name}", value)
        monkeypatch.setenv(f"UV_{name}", value)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


@pytest.fixture(params=["uv", "pip"])
def installing(
    request: pytest.FixtureRequest, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Installing:
    """Install into a folder with one of the two; answers the folder."""
    if request.param == "pip":
        hide_uv(monkeypatch)

    def run(what: PackageSet, name: str = "site") -> Path:
        site = tmp_path / name
        install(what, site)
        return site

    return run


def hide_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "_find_uv", lambda: "")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_wheel_for_the_image_is_chosen_not_for_this_machine(shelf: Path, installing: Installing) -> None:
    for machine in ("x86_64", "aarch64"):
        for python in ("cp311", "cp312"):
            tag = f"{python}-{python}-manylinux_2_17_{machine}"
            make_wheel(shelf, "native", tag=tag, files={"native/built_for": f"{python} {machine}"})
    site = installing(wanted("native"))
    assert (site / "native" / "built_for").read_text() == "cp312 aarch64"


def test_newer_and_older_names_of_the_same_platform(shelf: Path, installing: Installing) -> None:
    make_wheel(shelf, "newer", tag="cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64")
    make_wheel(shelf, "older", tag="cp312-cp312-manylinux2014_aarch64")
    make_wheel(shelf, "too_new", "2.0", tag="cp312-cp312-manylinux_2_39_aarch64")
    make_wheel(shelf, "too_new", "1.0")
    site = installing(wanted("newer", "older", "too_new"))
    assert {"newer", "older", "too_new"} <= {path.name for path in site.iterdir()}
    assert "1.0" in (site / "too_new" / "__init__.py").read_text()
    again = installing(wanted("too_new", libc="glibc-2.39"), "again")
    assert "2.0" in (again / "too_new" / "__init__.py").read_text()


def test_alpine_has_wheels_of_its_own(shelf: Path, installing: Installing) -> None:
    make_wheel(shelf, "native", tag="cp312-cp312-musllinux_1_1_aarch64", files={"native/libc": "musl"})
    make_wheel(shelf, "native", tag="cp312-cp312-manylinux_2_17_aarch64", files={"native/libc": "glibc"})
    assert (installing(wanted("native", libc="musl-1.2")) / "native" / "libc").read_text() == "musl"


def test_dependencies_come_along_unless_told_otherwise(shelf: Path, installing: Installing) -> None:
    make_wheel(shelf, "top", requires=["below"])
    make_wheel(shelf, "below")
    assert (installing(wanted("top")) / "below").is_dir()
    assert not (installing(wanted("top", dependencies=False), "bare") / "below").exists()


def test_files_of_requirements(shelf: Path, tmp_path: Path, installing: Installing) -> None:
    make_wheel(shelf, "one", "1.0")
    make_wheel(shelf, "one", "2.0")
    (tmp_path / "requirements.txt").write_text("# pinned\none==1.0\n")
    site = installing(wanted(requirements=(tmp_path / "requirements.txt",)))
    assert "1.0" in (site / "one" / "__init__.py").read_text()


def test_what_has_no_wheel_is_refused(
    shelf: Path, installing: Installing, capfd: pytest.CaptureFixture[str]
) -> None:
    make_wheel(shelf, "native", tag="cp312-cp312-manylinux_2_17_x86_64")
    with pytest.raises(Unavailable, match=r"could not install the packages for linux/arm64, Python 3\.12"):
        installing(wanted("native"))
    said = capfd.readouterr()
    assert "native" in said.err  # the installer's own words are for people
    assert said.out == ""  # and never among the result


def test_conditions_are_those_of_the_image_with_uv(shelf: Path, tmp_path: Path) -> None:
    requires = ['below; python_version < "3.9" and platform_machine == "aarch64"']
    make_wheel(shelf, "top", requires=requires)
    make_wheel(shelf, "below")
    install(wanted("top", python="3.8"), tmp_path / "site")
    assert (tmp_path / "site" / "below").is_dir()


def test_pip_comes_with_a_warning(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_tool(wanted("x"))[1] == ()
    hide_uv(monkeypatch)
    tool, notes = find_tool(wanted("x"))
    assert tool == (sys.executable, "-m", "pip")
    assert "pip judges" in notes[0]
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match="neither is here"):
        find_tool(wanted("x"))


def test_machines_that_uv_does_not_know_are_for_pip() -> None:
    tool, _ = find_tool(wanted("x", platform=parse_platform("linux/s390x")))
    assert tool == (sys.executable, "-m", "pip")
    with pytest.raises(Unavailable, match="no wheels are known for linux/mips"):
        arguments(wanted("x", platform=parse_platform("linux/mips")), Path("x"), uv=False)


@pytest.mark.parametrize("word", ["", " ", "-r", "--index-url=http://evil", "-e."])
def test_a_package_is_never_an_option(word: str) -> None:
    with pytest.raises(InvalidJob, match="is not a package"):
        check_packages(["good", word])


def test_the_installer_sees_no_option_in_a_package() -> None:
    for uv in (True, False):
        words = arguments(wanted("a", "b"), Path("x"), uv=uv)
        assert words[-3:] == ["--", "a", "b"]


@pytest.mark.parametrize(("text", "meant"), [("3.12", "3.12"), ("3.9.1", "3.9"), ("3.13.0rc2", "3.13")])
def test_versions_of_python(text: str, meant: str) -> None:
    assert check_python(text) == meant


@pytest.mark.parametrize("text", ["", "3", "2.7", "python3.12", "3.x", "3.12 --pre"])
def test_what_is_no_version_of_python(text: str) -> None:
    with pytest.raises(InvalidJob, match="python"):
        check_python(text)


@pytest.mark.parametrize("text", ["", "glibc", "musl-2.0", "glibc-3.1", "2.28"])
def test_what_is_no_c_library(text: str) -> None:
    for uv in (True, False):
        with pytest.raises(InvalidJob, match="libc"):
            arguments(wanted("x", libc=text), Path("x"), uv=uv)


def test_pip_and_uv_give_the_same_layer(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"one-1.0.data/scripts/raw": "#!python\nprint('a script of the wheel')\n"}
    make_wheel(shelf, "one", commands=["one-cli", "One.Other"], requires=["two"], files=raw)
    make_wheel(shelf, "two", commands=["two-cli"], files={"two/data.txt": "x"})
    digests = []
    for name in ("uv", "pip"):
        if name == "pip":
            hide_uv(monkeypatch)
        site = tmp_path / name
        install(wanted("one"), site)
        tidy(site)
        with packed("packages", site, list_tree(site), "/echelon/site") as (made, _):
            digests.append(made.blob.digest)
    assert content(tmp_path / "uv") == content(tmp_path / "pip")
    assert digests[0] == digests[1]


def test_nothing_of_this_machine_is_left(shelf: Path, tmp_path: Path, installing: Installing) -> None:
    wheel = make_wheel(
        shelf, "one", commands=["one-cli"], files={"one-1.0.data/scripts/raw": "#!python\nx = 1\n"}
    )
    site = installing(wanted(str(wheel)))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(site)], check=True)
    tidy(site)
    everything = content(site)
    for name, data in everything.items():
        assert str(tmp_path).encode() not in data, name
        assert sys.prefix.encode() not in data, name
    assert not [name for name in everything if "__pycache__" in name or name.endswith(("INSTALLER", ".lock"))]
    assert everything["bin/raw"] == b"#!/usr/bin/env python3\nx = 1\n"


def test_commands_start_and_the_list_of_files_is_true(shelf: Path, installing: Installing) -> None:
    make_wheel(shelf, "one", commands=["one-cli"])
    site = installing(wanted("one"))
    tidy(site)
    environment = os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [site / "bin" / "one-cli"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "one 1.0\n"
    with (site / "one-1.0.dist-info" / "RECORD").open(newline="") as stream:
        rows = {row[0]: row for row in csv.reader(stream)}
    assert set(rows) == set(content(site))
    for name, digest, size in rows.values():
        if digest:
            data = (site / name).read_bytes()
            assert int(size) == len(data)
            assert digest == "sha256=" + wheel_digest(data)


def wheel_digest(data: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def test_tidying_does_not_touch_what_is_linked_elsewhere(shelf: Path, tmp_path: Path) -> None:
    make_wheel(shelf, "one", commands=["one-cli"])
    site = tmp_path / "site"
    install(wanted("one"), site)
    other = tmp_path / "cache"
    other.mkdir()
    for path in (site / "bin" / "one-cli", site / "one-1.0.dist-info" / "RECORD"):
        os.link(path, other / path.name)
    before = content(other)
    tidy(site)
    assert content(other) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[console_scripts",
        "[console_scripts]\nx = os:system('x')\n",
        "[console_scripts]\n../x = a:b\n",
        "\xff",
    ],
)
def test_strange_lists_of_commands_do_no_harm(tmp_path: Path, text: str) -> None:
    site = tmp_path / "site"
    info = site / "one-1.0.dist-info"
    (site / "bin").mkdir(parents=True)
    info.mkdir()
    (tmp_path / "x").write_text("outside")
    (site / "bin" / "x").write_text("as it was")
    (info / "entry_points.txt").write_bytes(text.encode("latin-1"))
    (info / "RECORD").write_text("../../../../x,,\n/etc/passwd,,\nbin/x,,\n")
    tidy(site)
    assert (site / "bin" / "x").read_text() == "as it was"
    assert (tmp_path / "x").read_text() == "outside"
