"""Cells of an executed notebook as Jupyter shows them, by nbconvert: where the extra `notebook` is there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any


@cache
def load_beside() -> None:
    """Begin to import nbconvert, for a caller that waits for something else: that takes longer than the rest
    of what is done here.
    """
    threading.Thread(target=_load, name="nbconvert", daemon=True).start()


def _load() -> None:
    with suppress(ImportError):
        import nbconvert  # noqa: F401


def rendered_cells(document: Mapping[str, Any], heads: Mapping[int, str]) -> tuple[str, str] | None:
    """The cells as HTML, each with its head, by its number, before it, and the style that they need; None
    where nbconvert is not installed, or cannot show this notebook.

    It names no other host, and what cells show as HTML has no scripts: the page is opened from a disk, with
    rights that a notebook's outputs must not have."""
    try:
        import nbformat
        from nbconvert import HTMLExporter
        from nbformat.v4.rwbase import rejoin_lines
        from pygments.formatters import HtmlFormatter
    except ImportError:
        return None
    exporter = HTMLExporter(template_name="basic", sanitize_html=True, embed_images=False)
    try:
        whole = rejoin_lines(nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, **document}))
        cells = []
        for number, cell in enumerate(whole.cells, 1):
            if number in heads:
                cells.append(nbformat.from_dict(_head(number, heads[number])))
            cell.setdefault("id", f"cell-{number}")  # files of before 4.5, and of many tools, have none
            cells.append(cell)
        whole.cells, whole.nbformat_minor = cells, max(5, whole.nbformat_minor)
        body, _ = exporter.from_notebook_node(whole)
    except Exception:  # noqa: BLE001 - a notebook that it cannot show costs no run: our own page shows it
        return None
    return body, HtmlFormatter().get_style_defs(".highlight")


def _head(number: int, text: str) -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "id": f"head-{number}",
        "metadata": {},
        "source": f"<h2>{text}</h2>",
    }
