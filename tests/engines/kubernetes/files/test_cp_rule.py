"""`echelon cp` puts things where `cp -r` does: every row is tried with the real one, too."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.trees import tree
from tests.engines.kubernetes.files.test_transfer import fetch, fill, pod, send
from tests.engines.kubernetes.local_pod import Pod

from echelon.agent.files.landing import Landing
from echelon.cli.commands.cp import Location, _fetch, parse_place

__all__ = ["pod"]

SOURCE = {"file": b"1", "d/a": b"2", "d/sub/b": b"3"}
THERE = {"there/old": b"0", "there/d/a": b"older"}
ROWS = [
    (source, target) for source in ("file", "d", "d/.") for target in ("new", "there", "there/", "there/new")
]


def found(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def by_cp(folder: Path, source: str, target: str) -> dict[str, bytes | None]:
    fill(folder / "cp", {**SOURCE, **THERE})
    subprocess.run(["cp", "-r", source, target], cwd=folder / "cp", check=True)
    return found(folder / "cp")


@pytest.mark.parametrize("copy", [fetch, send])
@pytest.mark.parametrize(("source", "target"), ROWS)
def test_volumes(pod: Pod, tmp_path: Path, copy: Callable[..., Any], source: str, target: str) -> None:
    mine = fill(tmp_path / "mine", {**SOURCE, **THERE})
    content = parse_place(f"pvc:v/{source}").content
    to = f"{mine / target}/" if target.endswith("/") else mine / target
    copy(pod.open, mine / source.removesuffix("/."), to, into=not content)
    assert found(mine) == by_cp(tmp_path, source, target)


@pytest.mark.parametrize(("source", "target"), ROWS)
def test_results_of_a_run(tmp_path: Path, source: str, target: str) -> None:
    mine = fill(tmp_path / "mine", {**SOURCE, **THERE})

    class Results:
        """A run whose results are in a folder; `get` copies into one, as it does everywhere."""

        def get(self, path: str, to: Path | str, **_: object) -> Path:
            subprocess.run(["mkdir", "-p", str(to)], check=True)
            subprocess.run(["cp", "-r", str(mine / path), str(to)], check=True)
            return Path(to, Path(path).name)

    place = parse_place(f"fm:{source}")
    assert isinstance(place, Location)
    _fetch(Results(), place, mine / target, lambda _: None)  # type: ignore[arg-type]
    assert found(mine) == by_cp(tmp_path, source, target)


@pytest.mark.parametrize("copy", [fetch, send])
def test_a_copy_that_was_cut_off_goes_on_where_it_began(
    pod: Pod, tmp_path: Path, copy: Callable[..., Any]
) -> None:
    source = fill(tmp_path / "d", {"a": b"1", "b": b"2"})
    Landing(str(tmp_path / "new"), begins=True).close()
    assert copy(pod.open, source, tmp_path / "new", into=True).target == str(tmp_path / "new")
    assert tree(tmp_path / "new") == tree(source)
    assert copy(pod.open, source, tmp_path / "new", into=True).target == str(tmp_path / "new" / "d")
