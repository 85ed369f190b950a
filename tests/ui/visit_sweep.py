"""A visit to a sweep's page, and a comparison of two of its trials that are chosen in the list.

`python -m tests.ui.visit_sweep CHROMIUM ADDRESS FOLDER`, as `tests/ui/visit.py`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.ui.visit import main


def visit(page: Page, address: str, shots: Path) -> None:
    page.goto(address)
    page.get_by_role("link", name="tune", exact=True).click()
    expect(page.get_by_role("heading", name="Trials")).to_be_visible()
    rows = page.get_by_role("table").first.get_by_role("row")
    expect(rows.nth(0)).to_have_text(re.compile("Trial.*x.*loss.*State"))
    expect(rows.nth(1)).to_have_text(re.compile("^3.*-3"))  # the best first
    expect(rows).to_have_count(4)
    expect(page.get_by_role("heading", name="Graph")).to_have_count(0)
    page.screenshot(path=shots / "sweep.png", full_page=True)

    for run in ("tune-2", "tune-3"):
        page.get_by_role("checkbox", name=f"choose {run}", exact=True).check()
    page.get_by_role("link", name="Compare 2 runs").click()
    assert page.url.endswith("/#/compare/tune-2,tune-3")

    page.get_by_role("link", name="Runs").click()
    row = page.get_by_role("row", name=re.compile("^choose tune trials of tune"))
    expect(row).to_contain_text("3 trials, best loss -3 (x=3)")
    page.get_by_role("button", name="trials of tune").click()
    page.get_by_role("checkbox", name="choose tune-1", exact=True).check()
    expect(page.get_by_role("link", name=re.compile("Compare"))).to_have_count(0)
    page.get_by_role("checkbox", name="choose tune-3", exact=True).check()
    page.get_by_role("link", name="Compare 2 runs").click()
    assert page.url.endswith("/#/compare/tune-1,tune-3")
    page.reload()  # the address can be kept
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows.nth(0)).to_have_text("RunStateTookparameter xloss")
    expect(rows.nth(2)).to_have_text(re.compile("^tune-3.*3-3$"))
    expect(page.get_by_text("tune-1 and tune-3: the same")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("curve of loss"))).to_be_visible()
    page.screenshot(path=shots / "compare.png", full_page=True)
    page.evaluate("location.hash = '#/compare/tune-1,nobody'")
    expect(page.get_by_role("alert")).to_contain_text("nobody")
    print("compared", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), visit)
