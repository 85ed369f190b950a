"""A visit to the dashboard in a real browser, as a process of its own: Playwright keeps a loop running,
which other tests of the same process would stumble over.

`python -m tests.ui.visit CHROMIUM ADDRESS FOLDER`; what it has done is told line by line on standard output,
screenshots come to the folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright
from testbed.patience import FACTOR

SECONDS = 45.0 * FACTOR  # less than the test waits for the visitor, who says what is missing


def visit(page: Page, address: str, shots: Path) -> None:
    page.goto(address)
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert "token" not in page.url  # it does not stay in the address
    page.get_by_role("link", name="fm", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("fm.*running"))).to_be_visible()
    output = page.get_by_role("log")
    expect(output).to_contain_text("step=2")
    expect(output).to_contain_text("<script>document.title='taken'</script>")
    assert page.title() == "fm · echelon"
    expect(page.get_by_role("img", name=re.compile("curve of loss"))).to_be_visible()
    assert page.locator("figure canvas").count() == 1
    expect(page.get_by_role("progressbar", name="progress")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+/100000, 0%, .* left, loss "))).to_be_visible()
    page.screenshot(path=shots / "run.png", full_page=True)
    print("seen", flush=True)

    page.get_by_role("combobox", name="Rank").select_option("1")
    expect(output).not_to_contain_text("[0]")
    page.get_by_role("searchbox", name="Search").fill("HELLO")
    expect(output.locator(".text")).to_have_text(["hello from 1"])
    page.get_by_role("searchbox", name="Search").fill("")
    page.get_by_role("combobox", name="Rank").select_option("")
    expect(output).to_contain_text("[0]")
    print("filtered", flush=True)

    page.reload()
    expect(page.get_by_role("log")).to_contain_text("hello from 1")
    page.set_viewport_size({"width": 375, "height": 800})
    page.emulate_media(color_scheme="dark")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 375, f"the page is {wide} pixels wide on a phone"
    page.screenshot(path=shots / "phone.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 800})

    page.get_by_role("button", name="Stop", exact=True).focus()
    page.keyboard.press("Enter")  # by the keyboard alone
    expect(page.get_by_role("dialog")).to_contain_text("Stop run fm?")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_role("heading", name=re.compile("fm.*stopped"))).to_be_visible()
    page.screenshot(path=shots / "stopped.png", full_page=True)
    print("stopped", flush=True)

    page.get_by_role("link", name="Devices and queue").click()
    expect(page.get_by_text("No run is queued.")).to_be_visible()
    page.screenshot(path=shots / "devices.png", full_page=True)
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("link", name="bad", exact=True).click()
    expect(page.get_by_label("root cause")).to_contain_text("ValueError: no luck")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("link", name="bad", exact=True)).to_be_visible()
    page.screenshot(path=shots / "runs.png", full_page=True)
    print("looked around", flush=True)

    page.get_by_role("searchbox", name="Find").focus()
    sys.stdin.readline()  # the server was ended meanwhile
    expect(page.get_by_text("The server does not answer.")).to_be_visible()
    print("alone", flush=True)
    address = sys.stdin.readline().strip()  # another one has its port
    page.context.new_page().goto(address)
    expect(page.get_by_text("The server does not answer.")).to_have_count(0)
    assert page.evaluate("document.activeElement.type") == "search"  # nothing has moved by what came and went
    print("together again", flush=True)


def main(
    chromium: str,
    address: str,
    shots: Path,
    look: Callable[[Page, str, Path], None] = visit,
    zone: str | None = None,
) -> None:
    """Open a browser and look; what the page's scripts complain of is an error."""
    troubles: list[str] = []
    lost: list[str] = []
    expect.set_options(timeout=SECONDS * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_context(locale="en-US", color_scheme="light", timezone_id=zone).new_page()
        page.set_default_timeout(SECONDS * 1000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("requestfailed", lambda asked: lost.append(f"{asked.url}: {asked.failure}"))
        page.on(
            "console", lambda said: troubles.append(said.text) if "Content Security" in said.text else None
        )
        try:
            look(page, address, shots)
        except BaseException:
            print("requests that failed:", *lost, sep="\n", flush=True)
            page.screenshot(path=shots / "trouble.png", full_page=True)
            raise
        finally:
            browser.close()
    assert not troubles, troubles


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
