"""How lines of ranks are printed."""

from __future__ import annotations

import sys
import time

from echelon.cli.say import shown, split_at_cut, style, tamed
from echelon.model.log import LogLine

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")


class LinePrinter:
    """Prints log lines, each with its rank; of a single rank, as it wrote them.

    Unless `raw`, what would do more to a terminal than colour the line and paint it over is left out."""

    def __init__(
        self,
        *,
        prefix: bool = True,
        timestamps: bool = False,
        to_stderr: bool = False,
        at_once: bool = True,
        raw: bool = False,
    ) -> None:
        self._prefix = prefix
        self._timestamps = timestamps
        self._to_stderr = to_stderr
        self._tamed = (lambda text: text) if raw else tamed
        self._cut: dict[tuple[int | None, str], str] = {}
        self._at_once = at_once  # lines that come while a person watches are shown as they come
        self._begun: dict[tuple[int | None, str], LogLine] = {}
        self._terminal = {"stdout": sys.stdout.isatty(), "stderr": sys.stderr.isatty()}
        self._open_line = False
        self._painted = False

    def show(self, line: LogLine) -> None:
        """Print one line, or a piece of one."""
        import dataclasses

        if not self._prefix and not self._timestamps:
            self._show_as_written(line)
            return
        key = (line.rank, line.stream)
        begun = self._begun.pop(key, None)
        if begun is not None:
            line = dataclasses.replace(line, text=begun.text + line.text)
        if line.unfinished:
            self._begun[key] = line
        else:
            self._write(line, f"{self._head(line)}{self._tamed(line.text)}\n")

    def finish(self) -> None:
        """Print what was begun and never ended."""
        for line in self._begun.values():
            self._write(line, f"{self._head(line)}{self._tamed(line.text)}\n")
        if self._open_line and sys.stdout.isatty():
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _show_as_written(self, line: LogLine) -> None:
        """Print a single rank's output; on a terminal its progress bar overwrites itself."""
        paints = line.progress and self._terminal[line.stream]
        again = "\r\x1b[K" if self._painted else ""
        text = self._cut.pop((line.rank, line.stream), "") + line.text
        if line.unfinished:
            text, self._cut[line.rank, line.stream] = split_at_cut(text)
        self._write(line, again + self._tamed(text) + ("" if line.unfinished or paints else "\n"))
        self._painted = paints
        self._open_line = line.unfinished or paints

    def _write(self, line: LogLine, text: str) -> None:
        stream = sys.stderr if self._to_stderr or line.stream == "stderr" else sys.stdout
        stream.write(text)
        if self._at_once:
            stream.flush()

    def _head(self, line: LogLine) -> str:
        stamp = ""
        if self._timestamps:
            clock = time.strftime("%H:%M:%S", time.localtime(line.at))
            stamp = f"{clock}.{int(line.at * 1000) % 1000:03d} "
        if not self._prefix:
            return stamp
        if line.rank is None:
            return f"{stamp}[agent {line.worker}] "
        name = f"[{line.rank}]"
        if self._terminal["stderr" if self._to_stderr else line.stream]:
            name = shown(style(name, fg=_COLOURS[line.rank % len(_COLOURS)]))
        return f"{stamp}{name} "


class DataPrinter:
    """Prints log lines as data: JSON, one object to a line, or the items of one YAML list."""

    def __init__(self, format_: str, *, at_once: bool = True) -> None:
        self._as_json = format_ == "json"
        self._at_once = at_once

    def show(self, line: LogLine) -> None:
        """Print one line."""
        import msgspec

        if self._as_json:
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        else:
            import yaml

            sys.stdout.write(yaml.safe_dump([msgspec.to_builtins(line)], sort_keys=False, allow_unicode=True))
        if self._at_once:
            sys.stdout.flush()

    def finish(self) -> None:
        """Have all of it printed."""
        sys.stdout.flush()
