"""Git's rules, held against git itself."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.bundle.gitignore import (
    _CLASSES,
    Rules,
    is_ignored,
    parse,
    read,
    read_private,
    tracked_although_ignored,
)

Git = Callable[..., bytes]


@pytest.mark.parametrize(
    ("lines", "path", "is_folder", "expected"),
    [
        (b"*.log", b"deep/down/x.log", False, True),
        (b"/x.log", b"deep/x.log", False, None),
        (b"build/", b"build", True, True),
        (b"build/", b"build", False, None),
        (b"docs/*.html", b"docs/api/x.html", False, None),
        (b"docs/**/*.html", b"docs/api/x.html", False, True),
        (b"docs/**/*.html", b"docs/x.html", False, True),
        (b"**/logs", b"a/b/logs", True, True),
        (b"logs/**", b"logs", True, None),
        (b"*.bin\n!keep.bin", b"keep.bin", False, False),
        (b"!keep.bin\n*.bin", b"keep.bin", False, True),
        (b"# note\n\\#note", b"#note", False, True),
        (b"name\\ ", b"name ", False, True),
        (b"name  ", b"name", False, True),
        (b"name\r\n", b"name", False, True),
        (b"\xef\xbb\xbfname", b"name", False, True),
        (b"1", b"1", False, True),
        (b"run-[0-9]", b"run-7", False, True),
        (b"[[:upper:]]*", b"Data", False, True),
        (b"[!a]", b"b", False, True),
        (b"?", b"\xc3\xa9", False, None),  # git counts bytes
        (b"broken[", b"broken[", False, None),
        (b"ends\\", b"ends\\", False, None),
        (b"", b"a", False, None),
    ],
)
def test_single_rules(lines: bytes, path: bytes, is_folder: bool, expected: bool | None) -> None:
    assert is_ignored(_chain(lines), path, is_folder) is expected


def test_the_deepest_file_is_heard_first() -> None:
    chain = [*_chain(b"*.txt"), *_chain(b"!a.txt\n/b.txt", b"deep/")]
    assert is_ignored(chain, b"deep/a.txt", False) is False
    assert is_ignored(chain, b"deep/c.txt", False) is True
    assert is_ignored(_chain(b"/b.txt", b"deep/"), b"deep/b.txt", False) is True


def test_a_linked_ignore_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("*")
    (tmp_path / ".gitignore").symlink_to("real")
    assert read(tmp_path / ".gitignore") is None
    assert read(tmp_path / "real") is not None
    assert read(tmp_path / "missing") is None


def test_private_rules_of_a_further_work_tree(tmp_path: Path, git: Git) -> None:
    main, other = tmp_path / "main", tmp_path / "other"
    git("init", "-q", str(main))
    git("-C", str(main), "commit", "-q", "--allow-empty", "-m", "first")
    git("-C", str(main), "worktree", "add", "-q", str(other))
    (main / ".git/info/exclude").write_text("secret\n")
    for folder in (main, other):
        rules = read_private(folder / ".git")
        assert rules is not None
        assert is_ignored([rules], b"secret", False)


def test_git_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracked_although_ignored(tmp_path) == (frozenset(), "")  # no repository is no problem
    monkeypatch.setenv("PATH", str(tmp_path))
    paths, problem = tracked_although_ignored(tmp_path)
    assert not paths
    assert "git" in problem


def test_a_broken_repository_is_told(tmp_path: Path, git: Git) -> None:
    git("init", "-q", str(tmp_path))
    (tmp_path / ".git/index").write_bytes(b"garbage")
    paths, problem = tracked_although_ignored(tmp_path)
    assert not paths
    assert problem


NAMES = [
    b"a",
    b"b",
    b"ab",
    b"foo",
    b"a.c",
    b"b c",
    b"-x",
    b"]",
    b"[",
    b"\\q",
    b"\xc3\xa9",
    b"!a",
    b"#a",
    b" a",
    b"a ",
]
NAMES += [b"A", b"1", b"\t", b"^"]
TOKENS = [
    b"*",
    b"**",
    b"?",
    b"/",
    b"a",
    b"b",
    b"ab",
    b"foo",
    b".c",
    b"[",
    b"]",
    b"!",
    b"^",
    b"-",
    b"\\",
    b" ",
    b"1",
]
TOKENS += [
    b"[a-c]",
    b"[!a]",
    b"[[:alpha:]]",
    b"[:",
    b":]",
    b"[[:space:][:punct:]]",
    b"[[:foo:]]",
    b"\xc3\xa9",
    b"\xc3",
]
TOKENS += [
    b"#",
    b"q",
    b"**/",
    b"/**",
    b"\\/",
    b"[a-",
    b"\\]",
    b"[^]",
    b"\t",
    b"\r",
    b"\0",
    b"[[:upper:][:digit:]]",
]
TOKENS += [b"a/b", b"b/a", b"[z-a]", b"[\\]]", b"[a\\-c]"]
LINE = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=6).map(b"".join)
TEXT = st.lists(LINE, min_size=1, max_size=4).map(b"\n".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, git: Git) -> Path:
    """A tree with all the awkward names in all sorts of places."""
    root = tmp_path_factory.mktemp("oracle")
    git("init", "-q", str(root))
    rng = random.Random(1)
    paths = {tuple(rng.choices(NAMES, k=rng.randint(1, 4))) for _ in range(400)}
    paths |= {(b"foo", b"x", b"b"), (b"foob",), (b"foo", b"b")}
    for path in sorted(paths, key=len, reverse=True):
        full = root / os.fsdecode(b"/".join(path))
        full.parent.mkdir(parents=True, exist_ok=True)
        if not full.exists():
            full.touch()
    return root


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXT)
@example(text=b"foo**/b")
@example(text=b"a/**/\n!a/")
@example(text=b"*\n!*/\n!*.c")
def test_as_git_decides(repository: Path, git: Git, text: bytes) -> None:
    assert kept(repository, text) == kept_by_git(repository, text, git)


@pytest.mark.parametrize("name", [*sorted(_CLASSES), b"nonsense"])
def test_classes_of_characters(tmp_path: Path, git: Git, name: bytes) -> None:
    git("init", "-q", str(tmp_path))
    for byte in set(range(1, 256)) - set(b"/."):
        (tmp_path / os.fsdecode(bytes([byte]))).touch()
    for text in (b"[[:%s:]]" % name, b"[![:%s:]a-f]" % name):
        assert kept(tmp_path, text) == kept_by_git(tmp_path, text, git)


def kept(root: Path, text: bytes) -> set[bytes]:
    chain = _chain(text)

    def walk(folder: Path) -> Iterator[bytes]:
        for path in folder.iterdir():
            name = os.fsencode(path.relative_to(root))
            if name == b".git" or is_ignored(chain, name, path.is_dir()):
                continue
            if path.is_dir():
                yield from walk(path)
            else:
                yield name

    return set(walk(root))


def kept_by_git(root: Path, text: bytes, git: Git) -> set[bytes]:
    (root / ".git/info/exclude").write_bytes(text)
    answer = git("-C", str(root), "ls-files", "-z", "--others", "--exclude-standard")
    return {path for path in answer.split(b"\0") if path}


def _chain(lines: bytes, base: bytes = b"") -> list[Rules]:
    rules = parse(lines, base)
    return [rules] if rules else []
