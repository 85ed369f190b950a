"""`cp`, `volume` and `exec` as far as they need no cluster: what is copied where, and what is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from echelon.cli.commands.cp import Location, parse_place
from echelon.cli.printing.progress import CopyProgress
from echelon.errors import InvalidJob
from echelon.model.copy import Progress

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("pvc:data", Location(kind="volume", text="pvc:data", name="data", content=True)),
        ("pvc:data/", Location(kind="volume", text="pvc:data/", name="data", path="/", content=True)),
        ("pvc:data/a/b", Location(kind="volume", text="pvc:data/a/b", name="data", path="a/b")),
        ("pvc:data/a/", Location(kind="volume", text="pvc:data/a/", name="data", path="a/")),
        ("fm-1:", Location(kind="run", text="fm-1:", name="fm-1", path=".", content=True)),
        ("fm-1:ckpt/a.pt", Location(kind="run", text="fm-1:ckpt/a.pt", name="fm-1", path="ckpt/a.pt")),
        ("pvc:data/a/.", Location(kind="volume", text="pvc:data/a/.", name="data", path="a", content=True)),
        ("fm-1:a/.", Location(kind="run", text="fm-1:a/.", name="fm-1", path="a", content=True)),
        ("data/.", Location(kind="local", text="data/.", content=True)),
        ("data", Location(kind="local", text="data")),
        ("./fm:x", Location(kind="local", text="./fm:x")),
        ("/a/b:c", Location(kind="local", text="/a/b:c")),
    ],
)
def test_places(home: Path, text: str, place: Location) -> None:
    assert parse_place(text) == place


def test_a_file_that_is_there_is_no_run(home: Path) -> None:
    Path("a:b").touch()
    assert parse_place("a:b").kind == "local"


@pytest.mark.parametrize("text", ["pvc:", "pvc:Data", "pvc:data/../other", "pvc:data/a//b"])
def test_what_names_no_place_on_a_volume(text: str) -> None:
    with pytest.raises(InvalidJob, match="volume"):
        parse_place(text)
    with pytest.raises(click.UsageError):
        parse_place("")


@pytest.mark.parametrize("ends", [("a", "b"), ("pvc:a", "pvc:b"), ("a", "fm:b"), ("fm:a", "pvc:b")])
def test_one_end_is_here_and_the_other_is_not(call: Call, ends: tuple[str, str]) -> None:
    done = call("cp", *ends)
    assert done.returncode == 2
    assert "one of the two is on this machine" in done.stderr


def test_nothing_to_copy(call: Call) -> None:
    done = call("cp", "nothing", "pvc:data")
    assert done.returncode == 110
    assert "'nothing' is not there" in done.stderr


def test_results_of_a_local_run(call: Call, hello: str) -> None:
    assert call("run", "--name", "fm", hello).returncode == 0
    done = call("cp", "fm:logs", "copy")
    assert (done.returncode, done.stdout) == (0, "copy\n"), "under the name that is given"
    done = call("cp", "fm:logs", "copy")
    assert (done.returncode, done.stdout) == (0, "copy/logs\n"), "into a folder that is there"
    assert list(Path("copy/logs").iterdir())
    done = call("cp", "fn:logs", "copy")
    assert (done.returncode, "did you mean 'fm'?" in done.stderr) == (111, True)


def test_what_cannot_be_copied_of_results_is_told_and_it_may_be_said_again(call: Call) -> None:
    makes = "cd $ECHELON_OUTPUT; mkdir a; echo x > a/x; ln -s $ECHELON_OUTPUT/a/x a/latest; mkfifo a/pipe"
    assert call("run", "--name", "fm", "--", "sh", "-c", makes).returncode == 0
    for words in (("cp", "fm:a/.", "copy"), ("cp", "fm:a/.", "copy"), ("get", "fm", "a", "--to", "to")):
        done = call(*words)
        assert done.returncode == 0, done.stderr
        assert "not copied: pipe: a pipe" in done.stderr
    for folder in (Path("copy"), Path("to/a")):
        assert (folder / "latest").readlink() == Path("x")


def test_no_cluster(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    Path("data").mkdir()
    for words in (["cp", "data", "pvc:data"], ["volume", "ls"], ["volume", "rm", "--yes", "data"]):
        done = call(*words)
        assert done.returncode == 119
        assert "no kubeconfig" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["create", "Data"], "volume: 'Data' cannot be the name"),
        (["create", "data", "--size", "much"], "size: 'much'"),
        (["create", "data", "--label", "team"], "label: 'team' has no value"),
        (["create", "data", "--label", "-a=b"], "'-a=b'"),
    ],
)
def test_volumes_that_cannot_be(
    call: Call, words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    done = call("volume", *words)
    assert (done.returncode, problem in done.stderr) == (110, True), done.stderr


@pytest.mark.parametrize(
    "words",
    [["cp", "data", "pvc:a"], ["cp", "pvc:a", "."], ["volume", "ls"], ["volume", "create", "a"]],
)
def test_this_machine_has_no_volumes(call: Call, words: list[str]) -> None:
    Path("data").mkdir()
    done = call(*words, "--on", "local")
    assert done.returncode == 119
    assert "this machine has no volumes" in done.stderr
    assert "hint: --on" in done.stderr


def test_progress_in_lines(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with CopyProgress("pvc:data") as show:
        show.update(Progress(done=1 << 20, total=8 << 20, files=3))
        clock[0] += 2
        show.update(Progress(done=2 << 20, total=8 << 20, files=3))
        clock[0] += 4
        show.update(Progress(done=7 << 20, total=8 << 20, files_done=2, files=3))
        for _ in range(2):
            show.update(Progress(trouble="the connection was cut"))
        show.update(Progress(done=8 << 20, total=8 << 20, files_done=3, files=3))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "echelon: 7 MiB of 8 MiB, 1 MiB/s (2 of 3 files)",
        "echelon: the connection was cut; trying again",
        "echelon: connected again; continuing",
    ]
