"""A visit to a notebook's pipeline in a real browser, by the keyboard alone.

`python -m tests.ui.visit_pipeline CHROMIUM ADDRESS FOLDER`, as `tests/ui/visit.py`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.ui.visit import main


def visit(page: Page, address: str, shots: Path) -> None:
    page.goto(address)
    listed = page.get_by_role("table")
    expect(listed.get_by_role("link", name="book-1", exact=True)).to_be_visible()
    expect(listed.get_by_role("link", name="book-1-load")).to_have_count(0)  # its steps are one row
    page.get_by_role("button", name="steps of book-1").focus()
    page.keyboard.press("Enter")
    expect(listed.get_by_role("link", name="book-1-load")).to_be_visible()
    page.keyboard.press("Enter")
    expect(listed.get_by_role("link", name="book-1-load")).to_have_count(0)
    page.get_by_role("searchbox", name="Find").fill("book-1-lo")
    expect(listed.get_by_role("link", name="book-1-load")).to_be_visible()  # found inside
    page.get_by_role("searchbox", name="Find").fill("")
    listed.get_by_role("link", name="book-1", exact=True).focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("/#/run/book-1")
    page.evaluate("location.hash = '#/pipeline/book-1'")  # an address of earlier versions

    expect(page.get_by_role("heading", name=re.compile("book-1.*running"))).to_be_visible()
    graph = page.get_by_role("group", name="graph of book-1")
    expect(graph).to_contain_text("✓ succeeded")
    expect(graph).to_contain_text("▶ running")
    expect(graph).to_contain_text("… waiting")
    expect(page.get_by_role("log")).to_contain_text("[load] loaded")
    page.screenshot(path=shots / "pipeline.png", full_page=True)
    train = graph.get_by_role("link", name=re.compile("train"))
    train.focus()
    print("seen", flush=True)

    expect(page.get_by_role("heading", name=re.compile("book-1.*succeeded"))).to_be_visible()
    expect(graph.get_by_text("✓ succeeded")).to_have_count(3)
    expect(train).to_be_focused()  # although it was drawn anew
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390, f"the page is {wide} pixels wide on a phone"
    page.screenshot(path=shots / "pipeline-phone.png", full_page=True)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("book-1-train"))).to_be_visible()
    page.get_by_role("link", name="book-1", exact=True).click()
    expect(page.get_by_role("heading", name="Graph")).to_be_visible()
    print("followed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), visit)
