"""Pages are written to be read: short paragraphs, their purpose at the top, in a guide an example first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = sorted((ROOT / "docs").glob("guide-*.md"))
MOST_LINES, WIDTH = 6, 120
ITEM = re.compile(r"\s*([-*]|\d+\.)\s")


def paragraphs(text: str) -> Iterator[list[str]]:
    """The paragraphs and items of lists; headings, tables, pictures and code are none."""
    gathered: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        fence = line.strip().startswith("```")
        begins = ITEM.match(line) is not None
        ends = fence or fenced or begins or not line.strip() or line.startswith(("#", "|", "![", "<!--"))
        if ends and gathered:
            yield gathered
            gathered = []
        if begins or not ends:
            gathered.append(line.strip())
        fenced ^= fence


def lines_of(paragraph: list[str]) -> int:
    """As it stands, and as it would with full lines."""
    return max(len(paragraph), math.ceil(len(" ".join(paragraph)) / WIDTH))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_paragraph_has_more_than_six_lines(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [each[0] for each in paragraphs(text) if lines_of(each) > MOST_LINES] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n")
    assert title.startswith("# ")
    first = next(line for line in rest.splitlines() if line.strip() and not line.startswith("<!--"))
    assert re.match(r"`?\w", first), "not a table, a picture, a heading or code"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_guide_shows_an_example_before_its_first_section(page: Path) -> None:
    top, _, _ = page.read_text(encoding="utf-8").partition("\n## ")
    assert "\n```" in top


def test_a_long_paragraph_and_a_long_item_are_noticed() -> None:
    long = "words " * 121
    text = f"# Title\n\n{long}\n\n- short\n- {long}\n\n```\n{long}\n```\n\n" + "a line\n" * 7
    assert [lines_of(each) for each in paragraphs(text)] == [7, 1, 7, 7]
