"""A visit to a notebook in a real JupyterLab and a real browser, as a process of its own: Playwright keeps a
loop running, which other tests of the same process would stumble over.

`python -m tests.lab.visit NAME CHROMIUM ADDRESS FOLDER`; what it has done is told line by line on standard
output, screenshots come to the folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Error, Locator, Page, Route, expect, sync_playwright
from testbed.patience import FACTOR
from tests.lab.reading import hard_to_read, reached_by_tab

SECONDS = 60.0 * FACTOR


def cell(page: Page, number: int) -> Locator:
    return page.locator(".jp-Notebook .jp-Cell").nth(number - 1)


def show(page: Page, shots: Path, name: str) -> None:
    """The notebook and the panel, without the list of files and the menus."""
    page.screenshot(path=shots / f"{name}.png", clip={"x": 284, "y": 28, "width": 996, "height": 848})


def open_lab(page: Page, address: str) -> None:
    """Chromium drops requests when an interface of the machine comes or goes, as pods' do. Then JupyterLab
    cannot load its theme or ask its server, and says so, or has not all extensions."""
    page.add_locator_handler(
        page.get_by_role("dialog").filter(has_text=re.compile("Error Loading Theme|Server Connection Error")),
        lambda dialog: dialog.get_by_role("button").last.click(),
    )
    for _ in range(3):
        page.goto(address)
        expect(cell(page, 2).locator(".jp-InputArea-editor")).to_be_visible()
        with suppress(Error):
            page.get_by_role("tab", name="Pipeline").wait_for()
            return


def by_palette(page: Page, words: str, label: str) -> None:
    """Run a command by the keyboard, from a cell's editor. On a slow machine JupyterLab gives the focus to
    the notebook long after Escape; what is typed until then goes there."""
    page.keyboard.press("Escape")
    at = "document.activeElement"
    page.wait_for_function(f"{at}.closest('.jp-Notebook') && !{at}.closest('.jp-InputArea-editor')")
    page.keyboard.press("Control+Shift+C")
    search = page.locator(".lm-CommandPalette-search input")
    expect(search).to_be_focused()
    search.press_sequentially(words)
    expect(page.locator(".lm-CommandPalette-item.lm-mod-active")).to_contain_text(label)
    search.press("Enter")


def visit(page: Page, shots: Path) -> None:
    panel = page.locator(".echelon-panel")
    page.get_by_role("tab", name="Pipeline").click()
    expect(panel.get_by_role("heading", name="Cell 1")).to_be_visible()
    expect(page.locator("[data-echelon-step]")).to_have_count(0)  # nothing is tagged yet
    show(page, shots, "opened")
    panel.get_by_label("This cell").select_option("pipeline-parameters")
    expect(cell(page, 1)).to_have_attribute("data-echelon-step", "parameters")
    print("opened", flush=True)

    # Two cells become steps, by clicks; the second reads what the first makes.
    cell(page, 2).locator(".jp-InputArea-editor").click()
    panel.get_by_label("This cell").select_option("step")
    panel.get_by_label("Step", exact=True).fill("load")
    page.keyboard.press("Enter")
    expect(cell(page, 2)).to_have_attribute("data-echelon-step", "load")
    # The second one by the keyboard alone: from the cell to the panel, through its fields, and back.
    cell(page, 3).locator(".jp-InputArea-editor").click()
    expect(panel.get_by_role("heading", name="Cell 3: step load")).to_be_visible()
    by_palette(page, "pipeline panel", "Show the Pipeline Panel")
    expect(panel.get_by_label("This cell")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(panel.get_by_label("Step", exact=True)).to_be_focused()
    page.keyboard.type("train")
    page.keyboard.press("Enter")
    expect(cell(page, 3)).to_contain_text("it does not come after it")  # what does not fit, at the cell
    show(page, shots, "problem")
    assert not hard_to_read(page)
    page.keyboard.press("Tab")
    expect(panel.get_by_role("group", name="After").get_by_label("load")).to_be_focused()
    page.keyboard.press("Space")
    expect(cell(page, 3)).not_to_contain_text("it does not come after it")
    expect(panel.get_by_text("Tags: step:train prev:load")).to_be_visible()
    expect(panel.locator(".echelon-graph")).to_contain_text("data")  # the variable between the steps
    show(page, shots, "tagged")
    below = cell(page, 3).evaluate(
        """(cell) => cell.querySelector(".jp-cell-toolbar").getBoundingClientRect().top
        - cell.getBoundingClientRect().top - parseFloat(getComputedStyle(cell, "::before").height)"""
    )
    assert below >= 0, f"the cell's toolbar covers {-below} pixels of its mark"
    # What is typed counts also if the field is left for another cell.
    panel.get_by_label("Memory").fill("1Gi")
    cell(page, 1).locator(".jp-InputArea-editor").click()
    expect(panel.get_by_role("heading", name="Cell 1")).to_be_visible()
    cell(page, 3).locator(".jp-InputArea-editor").click()
    expect(panel.get_by_text("Tags: step:train prev:load limit:memory:1Gi")).to_be_visible()
    panel.get_by_label("Memory").fill("1 elephant")
    page.keyboard.press("Enter")
    expect(panel.get_by_text("Cell 3: limit:memory")).to_be_visible()
    panel.get_by_label("Memory").fill("")
    page.keyboard.press("Enter")
    expect(panel.get_by_text("Tags: step:train prev:load", exact=True)).to_be_visible()
    # A step gets another name: what comes after it follows, and back.
    cell(page, 2).locator(".jp-InputArea-editor").click()
    for name in ("fetch", "load"):
        panel.get_by_label("Step", exact=True).fill(name)
        page.keyboard.press("Enter")
        expect(cell(page, 2)).to_have_attribute("data-echelon-step", name)
        expect(page.locator(".echelon-note")).to_have_count(0)  # nothing is missed
        expect(panel.locator(f"g[data-step={name}]")).to_be_visible()
    cell(page, 3).locator(".jp-InputArea-editor").click()
    expect(panel.get_by_text("Tags: step:train prev:load", exact=True)).to_be_visible()
    print("tagged", flush=True)

    panel.get_by_label("factor").fill("3")
    panel.get_by_role("button", name="Run here").click()
    for step in ("load", "train"):
        expect(panel.locator(f"li[data-step={step}]")).to_have_attribute("data-state", "succeeded")
        expect(panel.locator(f"g[data-step={step}]")).to_have_attribute("data-state", "succeeded")
    expect(panel.get_by_role("status")).to_contain_text("book-1: succeeded")
    panel.locator("li[data-step=train]").get_by_role("button", name="Output").click()
    expect(panel.get_by_role("log", name="Output of train")).to_contain_text("total 18")
    show(page, shots, "run")
    with page.context.expect_page() as opened:
        panel.get_by_role("button", name="Open in the dashboard").click()
    expect(opened.value.get_by_role("heading", name="book-1")).to_be_visible()
    assert opened.value.url.endswith("/#/run/book-1")
    opened.value.close()
    print("run", flush=True)

    # A cell that fails says so where it stands; mended, the run goes on from there.
    cell(page, 3).locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.type("\nraise ValueError('no luck')")
    panel.get_by_role("button", name="Run here").click()
    expect(panel.locator("li[data-step=train]")).to_have_attribute("data-state", "failed")
    expect(cell(page, 3).locator(".echelon-notes")).to_contain_text("ValueError: no luck")
    expect(cell(page, 3).locator(".echelon-notes pre")).to_contain_text("Traceback")
    expect(panel.get_by_role("status")).to_contain_text("failed, ")
    show(page, shots, "failed")
    assert not hard_to_read(page)
    cell(page, 3).locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Shift+Home")
    page.keyboard.press("Delete")
    panel.get_by_role("button", name="Continue from here").focus()
    page.keyboard.press("Enter")  # by the keyboard alone
    expect(panel.locator("li[data-step=train]")).to_have_attribute("data-state", "succeeded")
    expect(panel.locator("li[data-step=load]")).to_have_attribute("data-state", "kept")
    expect(cell(page, 3).locator(".echelon-notes")).to_have_count(0)
    print("continued", flush=True)


def looks(page: Page, shots: Path) -> None:
    """A notebook in which a lot is wrong, whose last run failed, in the dark theme, by the keyboard alone."""
    panel = page.locator(".echelon-panel")
    expect(page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
    page.get_by_role("tab", name="Pipeline").click()
    for number, text in ((2, "'nowhere' is defined nowhere"), (3, "'neither' is defined nowhere")):
        expect(cell(page, number).locator(".echelon-notes")).to_contain_text(text)
        expect(panel.get_by_role("region", name="Problems")).to_contain_text(text)
    expect(cell(page, 3).locator(".echelon-notes")).to_contain_text("ValueError: no luck")
    for name, state in {"load": "succeeded", "train": "failed", "look": "not-reached"}.items():
        expect(panel.locator(f"li[data-step={name}]")).to_have_attribute("data-state", state)
    show(page, shots, "dark")
    for summary in panel.locator("details > summary").all():
        summary.click()
    cell(page, 2).locator(".jp-InputArea-editor").click()
    expect(panel.get_by_role("heading", name="Cell 2")).to_be_visible()
    assert not hard_to_read(page)
    print("readable", flush=True)

    panel.get_by_label("This cell").focus()
    missed, unseen = reached_by_tab(page)
    assert not missed, missed
    assert not unseen, unseen
    panel.locator("g[data-step=train]").focus()
    page.keyboard.press("Space")
    expect(panel.get_by_role("heading", name="Cell 3: step train")).to_be_visible()
    print("by keyboard", flush=True)

    # What is wrong with the notebook, and with the cluster, is told where the button was pressed.
    run = panel.get_by_role("button", name="Run in the cluster")
    run.focus()
    page.keyboard.press("Enter")
    expect(panel.locator("pre.echelon-trouble")).to_contain_text("'neither' is defined nowhere")
    for number in (2, 3):
        cell(page, number).locator(".cm-content").click()
        page.keyboard.press("Control+Home")
        page.keyboard.press("Shift+End")
        page.keyboard.press("Delete")
    expect(panel.get_by_role("region", name="Problems")).to_be_hidden()
    panel.get_by_label("Namespace").fill("team")
    run.focus()
    page.keyboard.press("Enter")
    expect(panel.locator("pre.echelon-trouble")).to_contain_text("context nowhere")
    expect(panel.locator("pre.echelon-trouble")).to_contain_text("refuses connections")
    expect(run).to_be_enabled()
    show(page, shots, "dark-cluster")
    assert not hard_to_read(page)
    print("refused", flush=True)


CHANGE = """count => {
  const cell = jupyterapp.shell.currentWidget.content.model.cells.get(199);
  for (let at = 0; at < count; at++) cell.sharedModel.setSource(`last = ${Math.random()}`);
}"""

WATCH = """node => {
  window.touched = 0;
  const seen = new MutationObserver(all => { window.touched += all.length; });
  seen.observe(node, { childList: true, subtree: true });
}"""


def large(page: Page, shots: Path) -> None:
    """200 cells: a change costs one question, and nothing of the panel that it does not concern."""
    panel = page.locator(".echelon-panel")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/echelon/" in request.url else None)
    page.get_by_role("tab", name="Pipeline").click()
    expect(panel.locator("g.step")).to_have_count(40)
    expect(panel.get_by_role("heading", name="Cell 1: step s0")).to_be_visible()
    panel.locator("g[data-step=s5]").focus()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("heading", name="Cell 26: step s5")).to_be_visible()
    expect(page.locator(".jp-Cell.jp-mod-active")).to_have_attribute("data-echelon-step", "s5")
    expect(page.locator(".jp-Cell.jp-mod-active")).to_be_in_viewport()
    panel.locator("g[data-step=s39]").focus()  # its cell may not be in the page for a long time yet
    page.keyboard.press("Enter")
    expect(panel.get_by_role("heading", name="Cell 196: step s39")).to_be_visible()
    show(page, shots, "large")
    size = panel.locator("*").count()
    assert size < 2000, f"the panel has {size} elements"
    print("drawn", flush=True)

    held: list[Route] = []
    page.route(re.compile("/echelon/analyse"), lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks a function
    panel.evaluate(WATCH)
    asked.clear()
    page.evaluate(CHANGE, 50)
    wait_for(page, lambda: bool(held))
    for _ in range(3):  # the server takes its time
        page.evaluate(CHANGE, 50)
        page.wait_for_timeout(1000)
    assert len(asked) == len(held) == 1
    held.pop().continue_()
    wait_for(page, lambda: bool(held))
    held.pop().continue_()
    page.wait_for_timeout(1000)
    assert len(asked) == 2
    assert not held
    assert page.evaluate("window.touched") == 0
    assert panel.locator("*").count() == size
    print("quiet", flush=True)


def whole(page: Page, shots: Path) -> None:
    """A panel as narrow as JupyterLab opens it: all of the graph, and every choice in full."""
    panel = page.locator(".echelon-panel")
    page.get_by_role("tab", name="Pipeline").click()
    expect(panel.locator("g.step")).to_have_count(6)
    cell(page, 2).locator(".jp-InputArea-editor").click()
    expect(panel.get_by_label("Runs as")).to_be_visible()
    show(page, shots, "narrow")
    outside = panel.locator(".echelon-graph").evaluate(
        """(graph) => [...graph.querySelectorAll("g.step, text")].filter(each =>
            each.getBoundingClientRect().right > graph.getBoundingClientRect().right
            || each.getBoundingClientRect().bottom > graph.getBoundingClientRect().bottom).length
            + (graph.scrollWidth > graph.clientWidth) + (graph.scrollHeight > graph.clientHeight)"""
    )
    assert not outside, "a part of the graph is not seen"
    cut = panel.evaluate(
        """(panel) => [...panel.querySelectorAll("select")].filter(one => one.offsetParent).flatMap(field => {
            const style = getComputedStyle(field), pen = document.createElement("canvas").getContext("2d");
            pen.font = `${style.fontSize} ${style.fontFamily}`;
            const arrow = 16, sides = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
            const texts = [...field.options].map(option => option.text);
            return texts.filter(text => pen.measureText(text).width > field.clientWidth - sides - arrow);
        })"""
    )
    assert not cut, cut
    assert not hard_to_read(page)
    panel.get_by_role("button", name="Larger").click()
    show(page, shots, "larger")
    expect(panel.locator(".echelon-graph.echelon-large")).to_have_count(1)
    panel.get_by_role("button", name="Larger").click()
    print("seen", flush=True)

    # The pipeline's name and description are the notebook's own.
    expect(panel.get_by_label("Name", exact=True)).to_have_value("")
    panel.get_by_label("Name", exact=True).fill("Digits, again")
    page.keyboard.press("Enter")
    panel.get_by_label("Description").fill("what it does")
    panel.get_by_text("Compile", exact=True).first.click()
    panel.get_by_role("button", name="Compile").click()
    expect(panel.get_by_text("Wrote compiled/digits-again.py.")).to_be_visible()
    panel.get_by_label("For", exact=True).select_option("tekton")
    panel.get_by_role("button", name="Compile").click()
    expect(panel.get_by_text("has no image")).to_be_visible()
    panel.get_by_text("For the cluster").click()
    panel.get_by_label("Image", exact=True).last.fill("python:3.12")
    panel.get_by_role("button", name="Compile").click()
    expect(panel.get_by_text("Wrote compiled/digits-again-needed.yaml and compiled/")).to_be_visible()
    show(page, shots, "compiled")
    assert not hard_to_read(page)
    print("compiled", flush=True)


def wait_for(page: Page, is_so: Callable[[], bool]) -> None:
    for _ in range(int(SECONDS * 10)):
        if is_so():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen")


def clustered(page: Page, shots: Path) -> None:
    """Two steps in the pods of a real cluster; the second one fails, and goes on there once it is mended."""
    panel = page.locator(".echelon-panel")
    page.get_by_role("tab", name="Pipeline").click()
    panel.locator("details > summary").filter(has_text="For the cluster").click()
    panel.get_by_label("Image", exact=True).last.fill(os.environ["ECHELON_VISIT_IMAGE"])
    panel.get_by_label("Volume").fill("new:50Mi@shared")
    panel.get_by_role("button", name="Run in the cluster").click()
    for step, state in {"load": "succeeded", "train": "failed"}.items():
        expect(panel.locator(f"li[data-step={step}]")).to_have_attribute("data-state", state)
    expect(cell(page, 3).locator(".echelon-notes")).to_contain_text("ValueError: no luck")
    show(page, shots, "cluster-failed")
    print("failed", flush=True)

    cell(page, 3).locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Shift+Home")
    page.keyboard.press("Delete")
    panel.get_by_role("button", name="Continue from here").click()
    expect(panel.locator("li[data-step=train]")).to_have_attribute("data-state", "succeeded")
    expect(panel.locator("li[data-step=load]")).to_have_attribute("data-state", "kept")
    panel.locator("li[data-step=train]").get_by_role("button", name="Output").click()
    expect(panel.get_by_role("log", name="Output of train")).to_contain_text("total 12")
    show(page, shots, "cluster")
    with page.context.expect_page() as opened:
        panel.get_by_role("button", name="Open in the dashboard").click()
    heading = opened.value.get_by_role("heading", name="book-1")
    with suppress(Error):
        heading.wait_for(timeout=SECONDS * 200)
    if not heading.is_visible():
        opened.value.reload()  # an interface went while it was loaded (`open_lab`)
    expect(heading).to_be_visible()
    expect(opened.value.get_by_role("group", name="graph of book-1")).to_contain_text("✓ succeeded")
    print("continued", flush=True)


VISITS = {"plain": visit, "looks": looks, "large": large, "whole": whole, "cluster": clustered}


def main(name: str, chromium: str, address: str, shots: Path) -> None:
    troubles: list[str] = []
    expect.set_options(timeout=SECONDS * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        page = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900}).new_page()
        page.set_default_timeout(SECONDS * 1000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
        try:
            open_lab(page, address)
            VISITS[name](page, shots)
        except BaseException:
            page.screenshot(path=shots / "trouble.png")
            raise
        finally:
            browser.close()
    # What the server refuses, Chromium tells of, too.
    assert not [each for each in troubles if "echelon" in each and "status of 422" not in each], troubles


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
