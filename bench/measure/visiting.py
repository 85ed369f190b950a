"""A visit to a dashboard under load, in a real browser. Times are taken in the page, from what a user does
until the answer is drawn (`visiting.js`).

`python visiting.py CHROMIUM ADDRESS ROUNDS` says "full" when all stored lines are there, "done" when it has
scrolled and filtered, and reads a line from its standard input: how many lines there are in the end, if that
matters. When the page shows that, it prints what it has seen, as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from bench.measure.dashboard import NAME, RANKS, RUNS, STORED
from playwright.sync_api import Page, expect, sync_playwright

_PATIENCE = 300_000  # ms


def visit(page: Page, address: str, rounds: int) -> dict[str, Any]:
    """Look at the list, then at the one run; scroll and filter it while it goes on."""
    page.goto(address)
    expect(page.locator("tbody tr")).to_have_count(RUNS)
    listed = page.evaluate("document.querySelectorAll('*').length")
    page.get_by_role("link", name=NAME, exact=True).click()
    status = page.locator(".filters [role=status]")
    digits = len(f"{STORED:,}")
    expect(status).to_have_text(re.compile(rf"^[\d,]{{{digits},}} lines"))
    print("full", flush=True)
    page.evaluate(Path(__file__).with_suffix(".js").read_text())
    took: dict[str, list[float]] = {}

    def do(name: str, call: str) -> None:
        took.setdefault(name, []).append(page.evaluate(f"window.visit.{call}"))

    for number in range(rounds):
        for part in (0.5, 0.1 + 0.01 * number, 0.9, 0.001):
            do("scroll to any line", f"scroll({part})")
        do("a page down", 'key("PageDown")')
        do("to the end", 'key("End")')
        do("one rank", f"rank({(17 + number) % RANKS})")
        do("scroll in one rank", "scroll(0.25)")
        check_place(page, 0.25)
        page.evaluate("window.visit.everything()")
        do("a text of every line", 'search("loss=")')
        do("a text of one rank", f'search("rank {number % RANKS} line")')
        do("a text of the first line alone", 'search("needle")')
        page.evaluate("window.visit.everything()")
    print("done", flush=True)
    if lines := sys.stdin.readline().strip():
        expect(status).to_have_text(f"{int(lines):,} lines")
    return {"took": took, "elements": max(listed, page.evaluate("window.most"))}


def check_place(page: Page, part: float) -> None:
    """Of one rank, the line in the middle tells its number: it must be that of the place."""
    found = re.search(r"line (\d+) of many", page.evaluate("window.visit.middle()"))
    total = int(page.locator(".filters [role=status]").inner_text().split()[0].replace(",", ""))
    assert found is not None
    assert abs(int(found[1]) - part * total) < 0.02 * total, (found[1], part, total)


def main(chromium: str, address: str, rounds: int) -> None:
    troubles: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_context(locale="en-US").new_page()
        page.set_default_timeout(_PATIENCE)
        expect.set_options(timeout=_PATIENCE)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        found = visit(page, address, rounds)
        browser.close()
    assert not troubles, troubles
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
