"""What a document names is there: files it links to, headings, modules, tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("bench", "docs", "examples", "src", "testbed", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for top in TOPS for page in (ROOT / top).rglob("*.md"))])
FILES = [path for top in TOPS for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]
# Each file and folder by all the ways to name it: `src/echelon/api.py`, `echelon/api.py`, `api.py`.
NAMES = {
    "/".join(parts[start:])
    for parts in (path.relative_to(ROOT).parts for path in FILES)
    for start in range(len(parts))
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
MODULE = re.compile(r"`([\w./-]+\.(?:py|js))[`:]")
TEST = re.compile(r"`([\w./-]+\.py)?::(\w+)`")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    found = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead = []
    for link in LINK.findall(text_of(page)):
        path, _, heading = link.partition("#")
        if "://" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in headings(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_is_named_is_there(page: Path) -> None:
    named = set(MODULE.findall(text_of(page)))
    assert sorted(path for path in named if path not in NAMES) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_is_there(page: Path) -> None:
    """`file.py::test_x`, and `::test_y` after it, of the same file."""
    missing, file = [], ""
    for named, test in TEST.findall(text_of(page)):
        file = named or file
        texts = [text_of(path) for path in FILES if path.as_posix().endswith(f"/{file}")]
        if not any(f"def {test}(" in text for text in texts):
            missing.append(f"{file}::{test}")
    assert missing == []
