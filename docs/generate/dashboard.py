"""Makes the pictures of the dashboard in `docs/pictures`: `python -m docs.generate.dashboard`.

The pages are the real ones, in a real browser (Playwright and Chromium), over runs that are played
(`scene.py`): so they look the same on every machine, and show nothing of it. With a folder, all pages come
there instead: wide and as a phone has them, light and dark.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.generate import scene
from testbed.chromium import find_chromium
from testbed.patience import FACTOR

from echelon.ui.server import Server

PICTURES = Path(__file__).parents[1] / "pictures"
PAGES = {  # their addresses, and what is there once they are drawn
    "runs": ("#/", "text=3 of 6 steps"),
    "run": ("#/run/fashion", ".charts .u-over"),
    "failed": ("#/run/resnet", ".cause"),
    "pipeline": ("#/run/titanic-2", ".graph rect"),
    "cluster": ("#/cluster", ".gpu.held"),
}
_WIDE, _PHONE = (1200, 860), (390, 844)
_COLOURS = 160  # of a picture: enough, and a third of the bytes
_DRAWN = 700  # milliseconds, for curves


@dataclass(frozen=True, slots=True)
class Picture:
    """A page as it is shown."""

    name: str
    page: str
    size: tuple[int, int]
    colours: str
    whole: bool = True  # also what a reader would have to scroll to


SHOWN = (
    Picture("dashboard-runs", "runs", (1200, 500), "light"),
    Picture("dashboard-run", "run", (1200, 1330), "light", whole=False),
    Picture("dashboard-failed", "failed", (1200, 640), "dark", whole=False),
    Picture("dashboard-pipeline", "pipeline", (1200, 800), "light"),
    Picture("dashboard-cluster", "cluster", (1200, 800), "dark"),
    Picture("dashboard-phone", "run", _PHONE, "dark", whole=False),
)


def every_form() -> Iterator[Picture]:
    """All pages in all forms."""
    for page in PAGES:
        for colours in ("light", "dark"):
            for form, size in (("wide", _WIDE), ("phone", _PHONE)):
                yield Picture(f"{page}-{form}-{colours}", page, size, colours)


def open_page(browser: Any, address: str, size: tuple[int, int], colours: str) -> Any:
    """The dashboard in a window of that size."""
    context = browser.new_context(
        locale="en-US",
        timezone_id="UTC",
        color_scheme=colours,
        viewport={"width": size[0], "height": size[1]},
    )
    page = context.new_page()
    page.set_default_timeout(60_000 * FACTOR)
    page.goto(address)
    page.get_by_role("heading", name="Runs").wait_for()
    return page


def take(page: Any, picture: Picture, path: Path) -> None:
    """Turn to a page of the dashboard, and write it down."""
    place, there = PAGES[picture.page]
    page.evaluate("(place) => { location.hash = place }", place)
    page.locator(there).first.wait_for()
    page.wait_for_timeout(_DRAWN)
    found, width = page.evaluate("document.documentElement.scrollWidth"), picture.size[0]
    if found > width:
        raise SystemExit(f"{picture.name}: the page is {found} pixels wide, the screen {width}")
    page.screenshot(path=path, full_page=picture.whole)


def make_small(path: Path) -> None:
    """The same picture in fewer bytes."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def main(folder: Path | None = None) -> None:
    """Serve what is played, and take the pictures."""
    from playwright.sync_api import sync_playwright

    target = folder or PICTURES
    target.mkdir(parents=True, exist_ok=True)
    now = time.time()
    with ExitStack() as stack:
        os.environ["ECHELON_HOME"] = stack.enter_context(tempfile.TemporaryDirectory())
        server = Server(scene.play(now))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        stack.callback(thread.join, 10.0)
        stack.callback(server.stop)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=find_chromium())
        stack.callback(browser.close)
        pages: dict[tuple[tuple[int, int], str], Any] = {}
        for picture in SHOWN if folder is None else every_form():
            path, form = target / f"{picture.name}.png", (picture.size, picture.colours)
            if form not in pages:
                pages[form] = open_page(browser, server.address, *form)
            take(pages[form], picture, path)
            if folder is None:
                make_small(path)
            sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
