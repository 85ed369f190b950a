"""Shipped archives beside each other."""

from __future__ import annotations

from pathlib import Path

from echelon.bundle.archive import pack, pack_files
from echelon.comparison.code import compare_archives

BEFORE = {
    "train.py": b"a = 1\nb = 2\n",
    "gone.py": b"x\n",
    "same.py": b"",
    "model.bin": b"\0\1",
    "big": bytes(2**20 + 1),
}
AFTER = {
    "train.py": b"a = 1\nb = 3\n",
    "new.py": b"y\nz\n",
    "same.py": b"",
    "model.bin": b"\0\2",
    "big": b"1" * (2**20 + 1),
}


def test_files_that_differ() -> None:
    found = {
        each.path: each
        for each in compare_archives(pack_files(BEFORE).data, pack_files(AFTER).data, ("a", "b"))
    }
    assert {path: (each.change, each.added, each.removed) for path, each in found.items()} == {
        "big": ("changed", 0, 0),
        "gone.py": ("removed", 0, 1),
        "model.bin": ("changed", 0, 0),
        "new.py": ("added", 2, 0),
        "train.py": ("changed", 1, 1),
    }
    assert (
        found["train.py"].diff == "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n"
    )
    assert found["model.bin"].diff == found["big"].diff == ""


def test_links_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "link.py").symlink_to("train.py")
    one = pack(tmp_path).data
    assert compare_archives(one, one, ("a", "b")) == []
    (tmp_path / "other.py").write_text("")
    (tmp_path / "link.py").unlink()
    (tmp_path / "link.py").symlink_to("other.py")
    (change,) = [
        each for each in compare_archives(one, pack(tmp_path).data, ("a", "b")) if each.path == "link.py"
    ]
    assert "-\x2d> train.py" in change.diff
