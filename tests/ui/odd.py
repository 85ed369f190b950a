"""Visits to the dashboard in a real browser at its edges: too many, too long, gone, cut off.

`python -m tests.ui.odd CHROMIUM ADDRESS FOLDER VISIT`, as `tests/ui/visit.py`; where the test has something
to do meanwhile, a visit prints a line and reads one."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, Page, WebSocketRoute, expect
from tests.ui.visit import SECONDS, main

AUDIT = Path(__file__).with_name("audit.js").read_text()
FRAGMENTS = ["a%2", "%", "%ff", "", "a/b", "%00", "..%2f..%2fetc", "<script>alert(1)</script>", "a" * 70_000]
WIDTHS = (320, 375, 640, 720)  # a small phone, a phone, a window of 1280 at 200 %, the narrowest with tables


def metrics(page: Page, address: str, _shots: Path) -> None:
    """Of 130 metrics 48 are drawn; the others are a button or a name away."""
    page.goto(f"{address}/run/many")
    expect(page.get_by_text("48 of 130 metrics are drawn")).to_be_visible()
    figures = page.locator("figure")
    expect(figures).to_have_count(48)
    page.get_by_role("button", name="Show 48 more").click()
    expect(figures).to_have_count(96)
    page.get_by_role("button", name="Show 34 more").click()
    expect(figures).to_have_count(130)
    expect(page.get_by_role("button", name=re.compile("more"))).to_have_count(0)
    page.get_by_role("searchbox", name="Find a metric").fill("LAYER12")
    expect(figures.locator("strong")).to_have_text(["layer12", *(f"layer12{number}" for number in range(10))])
    expect(page.get_by_text("11 of 130 metrics are drawn")).to_be_visible()
    page.get_by_role("searchbox", name="Find a metric").fill("none such")
    expect(page.get_by_text("0 of 130 metrics are drawn")).to_be_visible()
    page.get_by_role("searchbox", name="Find a metric").fill("")
    expect(figures).to_have_count(48)


def fragments(page: Page, address: str, _shots: Path) -> None:
    """Whatever stands behind the #, the page says what is there."""
    page.goto(address)
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    for kind in ("run", "pipeline"):
        for name in FRAGMENTS:
            page.evaluate("(hash) => { location.hash = hash }", f"#/{kind}/{name}")
            expect(page.get_by_role("heading", name="No such run")).to_be_visible()
            page.get_by_role("link", name="All runs").click()
            expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        page.evaluate("(hash) => { location.hash = hash }", f"#/{kind}/not-there")
        expect(page.get_by_role("heading", name="No such run")).to_be_visible()
        page.get_by_role("link", name="All runs").click()
    for hash_ in ("#/nothing", "#/run", "#nonsense", "#token=", "#/cluster/x"):
        page.evaluate("(hash) => { location.hash = hash }", hash_)
        expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    page.evaluate("location.hash = '#/run/fm/'")
    expect(page.get_by_role("heading", name=re.compile("^fm"))).to_be_visible()
    page.goto(page.url.partition("#")[0] + "#/run/a%2")
    for _ in range(3):  # Chromium drops requests when an interface of the machine comes or goes, as pods' do
        page.reload()
        with suppress(Error):
            page.get_by_role("heading", name="No such run").wait_for(timeout=SECONDS * 250)
            return
    raise AssertionError("the page is not drawn")


def place(page: Page, address: str, _shots: Path) -> None:
    """The heading and the tab name the cluster."""
    page.goto(address)
    expect(page.get_by_role("banner")).to_contain_text("context dev, namespace team-a")
    expect(page).to_have_title("Runs · dev/team-a · echelon")
    page.get_by_role("link", name="fm", exact=True).click()
    expect(page).to_have_title("fm · dev/team-a · echelon")


def removed(page: Page, address: str, _shots: Path) -> None:
    """A run goes while two tabs show it, and another one of its name comes."""
    page.goto(f"{address}/run/fm")
    other = page.context.new_page()
    other.goto(page.url)
    for each in (page, other):
        expect(each.get_by_role("button", name="Remove")).to_be_visible()
        expect(each.get_by_role("log")).to_contain_text("only rank 0")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_text("No runs yet")).to_be_visible()
    expect(other.get_by_text("fm was removed.")).to_be_visible()
    expect(other.get_by_role("button", name="Remove")).to_have_count(0)
    expect(other.get_by_role("log")).to_contain_text("only rank 0")  # what was seen stays
    say_and_wait("gone")
    expect(other.get_by_role("button", name="Stop")).to_be_visible()
    expect(other.get_by_text("fm was removed.")).to_have_count(0)
    expect(other.get_by_role("log")).to_contain_text("another one")
    expect(other.get_by_role("log")).not_to_contain_text("only rank 0")


def resumed(page: Page, address: str, _shots: Path) -> None:
    """A run that has failed runs again while its page is open."""
    page.goto(f"{address}/run/fm")
    expect(page.get_by_role("heading", name=re.compile("fm.*failed"))).to_be_visible()
    expect(page.get_by_label("root cause")).to_contain_text("no luck")
    say_and_wait("failed")
    expect(page.get_by_role("heading", name=re.compile("fm.*running"))).to_be_visible()
    expect(page.get_by_label("root cause")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.get_by_role("log")).to_contain_text("step=7")
    expect(page.get_by_role("img", name=re.compile("curve of loss, last value 0.7"))).to_be_visible()


def silent(page: Page, address: str, _shots: Path) -> None:
    """A connection that says nothing any more, though it never ended, is made again."""
    made: list[WebSocketRoute] = []
    deaf: list[bool] = [False]

    def connect(route: WebSocketRoute) -> None:
        first, server = not made, route.connect_to_server()
        made.append(route)

        def tell(message: Any) -> None:
            if not (first and deaf[0]):
                route.send(message)

        server.on_message(tell)
        route.on_close(lambda *_: None)  # as of a way that is gone: the end is not heard of either

    page.clock.install()
    page.route_web_socket(re.compile("/api/live"), connect)
    page.goto(f"{address}/run/fm")
    expect(page.get_by_role("heading", name=re.compile("fm.*running"))).to_be_visible()
    deaf[0] = True
    say_and_wait("asleep")  # the run is stopped meanwhile
    page.clock.run_for(60_000)
    expect(page.get_by_role("heading", name=re.compile("fm.*stopped"))).to_be_visible()
    assert len(made) > 1
    expect(page.get_by_text("The server does not answer.")).to_have_count(0)


def long(page: Page, address: str, shots: Path) -> None:
    """The longest names, lines of 16,000 characters and a thousand ranks, at every width."""
    page.goto(address)
    name = "n" * 40
    expect(page.get_by_role("link", name=name)).to_be_visible()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        fits(page, width, "the list")
    page.get_by_role("link", name=name).click()
    output = page.get_by_role("log")
    expect(output).to_contain_text("x" * 1000)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        fits(page, width, "a run")
        page.screenshot(path=shots / f"long-{width}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("location.hash = '#/run/wide'")
    ranks = page.get_by_role("combobox", name="Rank")
    expect(ranks.locator("option")).to_have_count(1001)
    ranks.select_option("999")
    expect(output.locator(".text")).to_have_text(["rank 999 is here"])
    page.screenshot(path=shots / "wide.png", full_page=True)
    tall = page.evaluate("document.documentElement.scrollHeight")
    assert tall < 3000, f"the page of a thousand ranks is {tall} pixels tall"


def fits(page: Page, width: int, what: str) -> None:
    page.wait_for_function("(width) => innerWidth === width", arg=width)
    found = page.evaluate("document.documentElement.scrollWidth")
    assert found <= width, f"{what} is {found} pixels wide in a window of {width}"


def zones(page: Page, address: str, _shots: Path) -> None:
    """Times are those of the browser's zone; the day is told where it is not today."""
    page.goto(f"{address}/run/old")
    expect(page.get_by_role("log")).to_contain_text("2001-02-03 09:05:06")  # +05:30
    expect(page.get_by_text("2001-02-03 09:05:")).not_to_have_count(0)
    page.evaluate("location.hash = '#/run/fm'")
    expect(page.get_by_role("log")).to_contain_text(re.compile(r"(?<!\d )\d\d:\d\d:\d\d \[0\]"))


def audit(page: Page, address: str, shots: Path) -> None:
    """Names, roles, the order of headings, contrast, sizes of targets: on each page, light and dark."""
    page.goto(address)
    troubles: list[str] = []
    for colours in ("light", "dark"):
        page.emulate_media(color_scheme=colours, reduced_motion="reduce")  # type: ignore[arg-type]
        for hash_, there in (
            ("#/", "table a"),
            ("#/run/fm", ".line .text"),
            ("#/run/bad", ".cause pre"),
            ("#/cluster", "h2"),
            ("#/run/a%2", "main a"),
        ):
            page.evaluate("(hash) => { location.hash = hash }", hash_)
            expect(page.locator(there).first).to_be_visible()
            page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
            page.screenshot(
                path=shots / f"audit-{colours}-{hash_.strip('#/%').replace('/', '-')}.png", full_page=True
            )
            troubles += [f"{hash_} {colours}: {each}" for each in page.evaluate(AUDIT)]
    page.evaluate("location.hash = '#/run/fm'")
    expect(page.get_by_role("log")).to_be_visible()
    troubles += unseen(page)
    assert not troubles, "\n".join(troubles)


def unseen(page: Page) -> list[str]:
    """What the Tab key comes to without a ring around it."""
    found = []
    page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate(
            """() => { const at = document.activeElement, style = getComputedStyle(at);
            if (at === document.body) return null;
            const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
            return [at.outerHTML.slice(0, 80), ring]; }"""
        )
        if name is None:
            break
        if not name[1]:
            found.append(f"no ring around {name[0]}")
    return found


def say_and_wait(what: str) -> None:
    print(what, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    visits = (metrics, fragments, place, removed, resumed, silent, long, zones, audit)
    chosen = {each.__name__: each for each in visits}[sys.argv[4]]
    zone = "Asia/Kolkata" if chosen is zones else None
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), chosen, zone)
