"""A short visit to the dashboard in a real browser: a run appears, is watched, and is stopped.

`python -m tests.ui.watch CHROMIUM ADDRESS FOLDER`, as `tests/ui/visit.py`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.ui.visit import main


def watch(page: Page, address: str, _shots: Path) -> None:
    page.goto(address)
    expect(page.get_by_text("No runs yet")).to_be_visible()
    print("looking", flush=True)
    page.get_by_role("link", name="fm", exact=True).click()  # once it was started
    output = page.get_by_role("log")
    expect(output).to_contain_text("hello from 0")
    expect(output).to_contain_text("hello from 1")
    expect(output).to_contain_text("step=2")
    expect(page.get_by_role("img", name=re.compile("curve of loss"))).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_role("heading", name=re.compile("fm.*stopped"))).to_be_visible()
    print("stopped", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), watch)
