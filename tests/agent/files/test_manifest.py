"""A tree's manifest is the same where the tree is and where its listing arrives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.pods import Pods
from tests.agent.trees import copy, tree
from tests.properties import examples

from echelon.agent.files.manifest import manifest_of
from echelon.engines.kubernetes.files.results.gather import place_of

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..") and not name.startswith(".echelon")
)
FILES = st.dictionaries(st.tuples(NAMES, NAMES), st.binary(max_size=50), max_size=6)


def figures(found: dict[str, Any]) -> tuple[object, ...]:
    return found["files"], found["size"], found["digest"]


@settings(max_examples=examples(30), deadline=None)
@given(FILES)
def test_both_ends_agree(
    tmp_path_factory: pytest.TempPathFactory, files: dict[tuple[str, str], bytes]
) -> None:
    source = tmp_path_factory.mktemp("source")
    for (folder, name), content in files.items():
        (source / folder).mkdir(exist_ok=True)
        (source / folder / name).write_bytes(content)
    stated = manifest_of(str(source))
    outcome = copy(source, tmp_path_factory.mktemp("target"))
    assert figures(outcome["manifest"]) == figures(stated)
    assert figures(stated)[:2] == (len(files), sum(map(len, files.values())))


def changes(source: Path) -> list[object]:
    return [
        lambda: (source / "a").write_bytes(b"longer than before"),
        lambda: os.utime(source / "a", ns=(5, 5)),
        (source / "a").unlink,
        lambda: (source / "new").write_bytes(b""),
        (source / "folder").mkdir,
        lambda: (source / "link").symlink_to("a"),
        lambda: os.mkfifo(source / "pipe"),
    ]


@pytest.mark.parametrize("number", range(7))
def test_whatever_changes_the_tree_changes_it(tmp_path: Path, number: int) -> None:
    (tmp_path / "a").write_bytes(b"before")
    before = figures(manifest_of(str(tmp_path)))
    changes(tmp_path)[number]()  # type: ignore[operator]
    assert figures(manifest_of(str(tmp_path))) != before


def test_a_folders_time_does_not_count(tmp_path: Path) -> None:
    """A lock file that comes and goes is no change of what is there."""
    (tmp_path / "sub").mkdir()
    before = manifest_of(str(tmp_path))
    (tmp_path / "sub" / "lock").touch()
    (tmp_path / "sub" / "lock").unlink()
    os.utime(tmp_path / "sub", ns=(7, 7))
    assert manifest_of(str(tmp_path)) == before


def test_nothing_there(tmp_path: Path) -> None:
    assert figures(manifest_of(str(tmp_path / "none"))) == (0, 0, "")


def test_links_to_absolute_places_inside_stay_links(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "a").write_text("alpha")
    (source / "top").symlink_to(source)
    (source / "deep" / "er" / "up").symlink_to(source / "a")
    (source / "down").symlink_to(source / "deep" / "er")
    (source / "out").symlink_to(tmp_path / "elsewhere")
    (source / "tricky").symlink_to(f"{source}/deep/../../elsewhere")
    (source / "beside").symlink_to(f"{source}-not")
    outcome = copy(source, target)
    assert tree(target) == {
        "a": tree(source)["a"],
        "deep": "folder",
        "deep/er": "folder",
        "deep/er/up": "-> ../../a",
        "down": "-> deep/er",
        "top": "-> .",
    }
    assert [path for path, _ in outcome["left_out"]] == ["beside", "out", "tricky"]
    assert outcome["failed"] == []
    assert figures(outcome["manifest"]) == figures(manifest_of(str(source)))


WRITES = """
import os
folder = os.environ["ECHELON_OUTPUT"]
for number in range(1 + int(os.environ["ECHELON_RANK"])):
    with open(f"{folder}/part-{number}", "w") as file:
        file.write("12345")
"""


def test_each_worker_states_what_it_holds(pods: Pods) -> None:
    kept = [str(pods.folder / f"{worker}.0" / "output") for worker in range(2)]
    pods.script(WRITES, workers=2, hold=600.0)
    for worker in (1, 0):
        pods.start(worker, kept=[kept[worker], "/no/such/folder"])
    pods.wait_for("worker-ended", of=0)
    ends = {event["worker"]: event for event in pods.events() if event["kind"] == "worker-ended"}
    for worker in range(2):
        stated, missing = ends[worker]["manifests"]
        assert stated == {**manifest_of(kept[worker]), "worker": worker}
        assert stated["files"] == 1 + worker + 1, "the rank's log is one of them"
        assert (missing["files"], missing["digest"]) == (0, "")
    assert pods.order(0, "release").returncode == 0
    assert [pods.code(worker) for worker in range(2)] == [0, 0]


def test_a_worker_that_did_not_run_states_nothing(pods: Pods) -> None:
    bundle = {"digest": "x", "target": str(pods.folder / "code"), "parts": ["/no/such/part"]}
    pods.script("print(1)", hold=600.0, kept=["/tmp"], bundle=bundle)
    pods.start(0)
    pods.wait_for("worker-ended")
    assert "manifests" not in next(each for each in pods.events() if each["kind"] == "worker-ended")


def test_links_follow_what_is_moved(tmp_path: Path) -> None:
    """A worker's logs go beside those of the others, and its links to them still lead there."""
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "logs").mkdir(parents=True)
    (source / "deep").mkdir()
    (source / "logs" / "rank-1.log").write_text("a line")
    (source / "deep" / "a").write_text("alpha")
    (source / "deep" / "log").symlink_to("../logs/rank-1.log")
    (source / "log").symlink_to(source / "logs" / "rank-1.log")
    (source / "a").symlink_to("deep/a")
    (source / "top").symlink_to(".")
    copy(source, target, move=lambda path: place_of(1, path))
    assert {name for name in tree(target) if name.endswith("log")} >= {"worker-1/log", "worker-1/deep/log"}
    for name in ("worker-1/log", "worker-1/deep/log"):
        assert (target / name).is_symlink()
        assert (target / name).read_text() == "a line"
    assert (target / "worker-1" / "a").read_text() == "alpha"
    assert (target / "worker-1" / "top").resolve() == target / "worker-1"
