"""Makes `docs/session.svg`, the README's picture, from a real session: `python docs/generate/session.py`.

Every command runs in a pseudo-terminal, with colours, and what it prints is drawn as it came. Two things are
changed: the session's temporary folder is shown as `~`, and lines wrap at the picture's width.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import random
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME as THEME
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "session.svg"
COLUMNS = 92
COMMANDS = (
    "echelon run -n 2 --name fit train.py data",
    "ls runs/fit",
    "echelon run -n 2 --name again train.py new-data",
    "echelon ps -a",
)
_WIDTH, _HEIGHT, _FONT = (
    8.4,
    19,
    14,
)  # of a character, in pixels; Menlo and its like are 0.6 times as wide as high
_MARGIN, _BAR = 16, 34


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and what the terminal showed for it."""

    command: str
    shown: str


def record(
    commands: Iterable[str], folder: Path, environment: Mapping[str, str], columns: int = COLUMNS
) -> list[Step]:
    """Run commands one after the other in a folder, each in a pseudo-terminal."""
    around = {**environment, "TERM": "xterm-256color"}
    steps = []
    for command in commands:
        shown = _in_terminal(shlex.split(command), folder, around, columns)
        steps.append(Step(command, shown.replace(f"{folder}", "~")))
    return steps


def _in_terminal(words: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    program = shutil.which(words[0], path=environment["PATH"]) or words[0]
    with subprocess.Popen(
        [program, *words[1:]],
        cwd=folder,
        env=dict(environment),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ):
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
        except OSError:
            pass  # what Linux says when the last writer has closed its end
        finally:
            os.close(ours)
    return b"".join(pieces).decode(errors="replace").replace("\r\n", "\n")


def draw(steps: Iterable[Step], columns: int = COLUMNS) -> str:
    """The session as an SVG: one text element for every line of the terminal."""
    console = Console(width=columns, color_system="truecolor", force_terminal=True, file=io.StringIO())
    text = Text()
    for step in steps:
        text.append("$ ", Style(color="bright_black")).append(f"{step.command}\n", Style(bold=True))
        text.append_text(Text.from_ansi(step.shown.rstrip("\n"))).append("\n" if step.shown else "")
    lines = console.render_lines(text, pad=False)
    while lines and not "".join(segment.text for segment in lines[-1]).strip():
        lines.pop()
    width = round(columns * _WIDTH + 2 * _MARGIN)
    height = _BAR + len(lines) * _HEIGHT + _MARGIN
    drawn = "\n".join(_line(segments, _BAR + at * _HEIGHT + _FONT) for at, segments in enumerate(lines))
    lights = "".join(
        f'<circle cx="{20 + 20 * at}" cy="17" r="6" fill="{colour}"/>'
        for at, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size}>
<title>A terminal session with echelon</title>
<rect width="{width}" height="{height}" rx="8" fill="{THEME.background_color.hex}"/>
{lights}
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" \
font-size="{_FONT}" fill="{THEME.foreground_color.hex}" xml:space="preserve">
{drawn}
</g>
</svg>
"""


def _line(segments: Sequence[Segment], y: int) -> str:
    length = sum(len(segment.text) for segment in segments)
    spans = "".join(_span(segment) for segment in segments if segment.text)
    if not spans:
        return ""
    # A font of another width than the picture assumes is stretched, so that no line leaves the picture.
    return f'<text x="{_MARGIN}" y="{y}" textLength="{length * _WIDTH:.1f}">{spans}</text>'


def _span(segment: Segment) -> str:
    style = segment.style or Style()
    marks = ""
    if style.color is not None and not style.color.is_default:
        marks += f' fill="{style.color.get_truecolor(THEME).hex}"'
    if style.bold:
        marks += ' font-weight="bold"'
    if style.dim:
        marks += ' fill-opacity="0.6"'
    return f"<tspan{marks}>{escape(segment.text)}</tspan>" if marks else escape(segment.text)


def _make_project(folder: Path) -> None:
    """The script, and two folders of data, of which the second has a row without a target."""
    shutil.copy(Path(__file__).with_name("train.py"), folder)
    random.seed(0)
    for name in ("data", "new-data"):
        (folder / name).mkdir()
        for rank in range(2):
            inputs = [random.uniform(-1, 1) for _ in range(1000)]  # noqa: S311 - points of a line
            rows = [f"{each:.4f},{3 * each + random.gauss(1, 0.01):.4f}" for each in inputs]
            if (name, rank) == ("new-data", 1):
                rows[310] = f"{inputs[310]:.4f},"
            (folder / name / f"part-{rank}.csv").write_text("\n".join(rows))


def main() -> None:
    """Make a project in a temporary folder, run the session in it, and write the picture."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _make_project(folder)
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": made,
            "ECHELON_HOME": f"{made}/.echelon",
            "LANG": "C.UTF-8",
        }
        PICTURE.write_text(draw(record(COMMANDS, folder, environment)), encoding="utf-8")


if __name__ == "__main__":
    main()
