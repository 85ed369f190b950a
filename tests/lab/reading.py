"""Whether everyone can read and use the panel: contrast by the computed colours, and the keyboard alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

LEAST = 4.5  # contrast of text, as WCAG 2 has it for AA
OF_GRAPHICS = 3.0  # of signs that say something

_FIND = (Path(__file__).parent / "contrast.js").read_text()

_CAN_FOCUS = "select, input, button, summary, a[href], [tabindex='0']"
_LIST = """(node, wanted) => [...node.querySelectorAll(wanted)]
  .filter(each => each.checkVisibility() && !each.disabled)
  .map((each, at) => {
    each.dataset.reached = at;
    return `${each.tagName} ${each.textContent.slice(0, 30)}`;
  })"""
_AT = """() => {
  const node = document.activeElement, { outlineStyle, outlineWidth } = getComputedStyle(node);
  return { at: node.dataset.reached ?? null, ring: outlineStyle !== "none" && parseFloat(outlineWidth) >= 1 };
}"""


def hard_to_read(page: Page) -> list[str]:
    """The texts and signs of the panel, and those that it puts at cells, that lack contrast."""
    found: list[str] = page.evaluate(_FIND, [LEAST, OF_GRAPHICS])
    return found


def reached_by_tab(page: Page) -> tuple[list[str], list[str]]:
    """From the panel's first field on, by Tab alone: what is not reached, and what has no visible focus."""
    names: list[str] = page.locator(".echelon-panel").evaluate(_LIST, _CAN_FOCUS)
    seen: dict[int, bool] = {}
    for _ in range(2 * len(names)):
        found: dict[str, Any] = page.evaluate(_AT)
        if found["at"] is None:
            break
        seen[int(found["at"])] = found["ring"]
        page.keyboard.press("Tab")
    missed = [name for at, name in enumerate(names) if at not in seen]
    return missed, [names[at] for at, ring in seen.items() if not ring]
