"""Makes what `docs/architecture.md` shows of the code from the code: `python -m docs.generate.architecture`.

The picture has the floors of the import contract (`pyproject.toml`), top to bottom. The table has every
package and every module beside them, with the first paragraph of its docstring. Only captions are ours.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
BEGIN, END = "<!-- packages: generated, do not edit -->\n", "<!-- end of packages -->\n"
SOURCE = ROOT / "src" / "echelon"
# Bands of the picture: a title, what it is for, what it hands down, and its first package.
BANDS = (
    ("What people see", "parse, one call, render", "", "cli"),
    ("What can be asked for", "a run, or many as one", "settings", "api"),
    ("Submission", "settle, record, admit", "a job, its code", "submit"),
    ("One run", "status, logs, results, stop", "", "handle"),
    ("Admission", "where it fits, or why not", "a plan", "admission"),
    ("Where runs happen", "three engines, one protocol", "", "engines"),
    ("Decisions and formats", "pure", "", "frameworks"),
    ("Values", "frozen", "", "model"),
)
_GREY = "#4b5563"
_COLOURS = ("#dbeafe", "#e0e7ff", "#ede9fe", "#fce7f3", "#ffedd5", "#fef3c7", "#dcfce7", "#e5e7eb")
_WIDTH, _LEFT, _RIGHT, _ROW, _BOX = 940, 222, 716, 34, 26
_AGENT = _RIGHT + 62  # where its column begins
_MIDDLE = (_AGENT + _WIDTH - 12) / 2
_INSIDE = {"engines": "engines: kubernetes · local · memory"}


def floors() -> list[list[str]]:
    """The layers of the import contract, the highest first, each with the packages and modules on it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["name"] == "layers")
    return [[name.strip().removeprefix("echelon.") for name in layer.split("|")] for layer in layers]


def bands() -> list[list[list[str]]]:
    """The floors of each band."""
    gathered: list[list[list[str]]] = []
    begins = [first for *_, first in BANDS]
    for floor in floors():
        if len(gathered) < len(BANDS) and begins[len(gathered)] in floor:
            gathered.append([])
        gathered[-1].append(floor)
    return gathered


def table() -> str:
    """Every package, and every module that is in none, in the order of the floors, the agent last."""
    rows = ["| package | what it is |", "|---|---|"]
    for name in [*(each for floor in floors() for each in floor), "agent"]:
        rows += [f"| `{where}` | {said} |" for where, said in _rows(name)]
    return "\n".join(rows) + "\n"


def _rows(name: str) -> Iterator[tuple[str, str]]:
    if not (SOURCE / name).is_dir():
        yield f"{name}.py", first_paragraph(SOURCE / f"{name}.py")
        return
    for init in sorted((SOURCE / name).rglob("__init__.py"), key=lambda path: path.parent.parts):
        yield f"{init.parent.relative_to(SOURCE)}/", first_paragraph(init)


def first_paragraph(path: Path) -> str:
    """Of a module's docstring, on one line."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert said, f"{path} has no docstring"
    return " ".join(said.split("\n\n")[0].split()).replace("|", "\\|")


def page() -> str:
    """The page with the table as the code has it today."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def picture() -> str:
    """The floors as an SVG."""
    parts = list(_lines(_MIDDLE, 40, "Each row imports", "only from the rows", "below it."))
    y = 16
    engines = bottom = 0
    for (title, below, handed, first), rows, colour in zip(BANDS, bands(), _COLOURS, strict=True):
        height = len(rows) * _ROW + 10
        parts.append(_rectangle(12, y, _RIGHT - 12, height, colour))
        middle = y + height / 2
        parts.append(_text(26, middle - 3, title, 14, weight=600))
        parts.append(_text(26, middle + 14, below, 12, fill=_GREY))
        for at, row in enumerate(rows):
            parts += _boxes(row, y + 5 + at * _ROW + (_ROW - _BOX) / 2)
        if first == "handle":
            parts += _lines(_MIDDLE, middle - 10, "The status of a run", "is a fold over", "its events.")
        if first == "engines":
            engines = y
        y += height
        bottom = y
        if handed:
            parts += _lines((_LEFT + _RIGHT) / 2, y + 15, f"↓ {handed}")
            y += 22
        else:
            y += 6
    parts += _agent(engines, bottom)
    size = f'viewBox="0 0 {_WIDTH} {bottom + 16}" width="{_WIDTH}" height="{bottom + 16}"'
    drawn = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size}>
<title>The packages of echelon, floor by floor: each imports only from the floors below it</title>
<rect width="{_WIDTH}" height="{bottom + 16}" rx="8" fill="#ffffff"/>
<g font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" fill="#111827">
{drawn}
</g>
</svg>
"""


def _boxes(names: list[str], y: float) -> Iterator[str]:
    x = float(_LEFT)
    for name in names:
        shown = _INSIDE.get(name, name)
        width = len(shown) * 7.4 + 18
        yield _rectangle(x, y, width, _BOX, "#ffffff", stroke="#9ca3af")
        yield _text(x + width / 2, y + 18, shown, 13, anchor="middle")
        x += width + 8


def _agent(top: int, bottom: int) -> Iterator[str]:
    yield _rectangle(_AGENT, top, _WIDTH - _AGENT - 12, bottom - top, "#fee2e2")
    yield _text(_MIDDLE, top + 30, "agent", 14, weight=600, anchor="middle")
    yield from _lines(_MIDDLE, top + 48, "beside the ranks", "of every worker")
    yield from _lines(_MIDDLE, top + 102, "standard library,", "Python 3.8; imports", "nothing of the rest")
    yield from _arrow(top + 17, _RIGHT + 4, _AGENT - 4, "task")
    yield from _arrow(top + 41, _AGENT - 4, _RIGHT + 4, "events")


def _arrow(y: int, start: int, end: int, said: str) -> Iterator[str]:
    head = end - (6 if end > start else -6)
    way = f"M{start} {y}H{end}M{head} {y - 4}L{end} {y}L{head} {y + 4}"
    yield f'<path d="{way}" stroke="{_GREY}" fill="none"/>'
    yield _text((start + end) / 2, y - 4, said, 11, fill=_GREY, anchor="middle")


def _lines(x: float, y: float, *lines: str) -> Iterator[str]:
    for at, line in enumerate(lines):
        yield _text(x, y + at * 18, line, 12, fill=_GREY, anchor="middle")


def _rectangle(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> str:
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return f'<rect x="{x:.0f}" y="{y:.0f}" {size} rx="6" fill="{fill}" stroke="{stroke}"/>'


def _text(
    x: float, y: float, said: str, size: int, *, weight: int = 400, fill: str = "", anchor: str = "start"
) -> str:
    looks = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    colour = f' fill="{fill}"' if fill else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" {looks}{colour}>{escape(said)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
