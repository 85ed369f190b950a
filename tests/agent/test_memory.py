"""What the agent reads of its control group, in both versions of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.agent import memory


def lay_out(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def second_version(root: Path, kills: int, limit: str) -> str:
    return lay_out(
        root,
        memory_DOT_events=f"low 0\nhigh 0\nmax 3\noom {kills}\noom_kill {kills}\noom_group_kill 0\n",
        memory_DOT_max=f"{limit}\n",
    )


def first_version(root: Path, kills: int, limit: str) -> str:
    return lay_out(
        root,
        memory__memory_DOT_oom_control=f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
        memory__memory_DOT_limit_in_bytes=f"{limit}\n",
    )


@pytest.mark.parametrize("version", [first_version, second_version])
@pytest.mark.parametrize(
    ("limit", "words"),
    [("67108864", "64Mi"), ("3221225472", "3Gi"), ("1536", "1536"), ("10240", "10Ki")],
)
def test_kills_and_the_limit(tmp_path: Path, version: object, limit: str, words: str) -> None:
    root = version(tmp_path, 2, limit)  # type: ignore[operator]
    assert (memory.kills(root), memory.limit(root)) == (2, words)


def test_no_limit(tmp_path: Path) -> None:
    assert memory.limit(second_version(tmp_path / "second", 0, "max")) == ""
    assert memory.limit(first_version(tmp_path / "first", 0, "9223372036854771712")) == ""


def test_no_control_groups(tmp_path: Path) -> None:
    assert (memory.kills(str(tmp_path)), memory.limit(str(tmp_path))) == (0, "")
