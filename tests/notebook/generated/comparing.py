"""A notebook as a pipeline and as plain execution: whether both note the same, and if not, whether it was
said."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.notebook.books import Cells, new_folder, write_book

from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.pipeline import Pipeline, read_pipeline
from echelon.notebook.execution.program import sources_of, specification

NOTE = """
import os
def note(*seen):
    with open(os.environ["NOTES"], "a") as file:
        file.write(" ".join(repr(each) for each in seen) + "\\n")
"""
_NAMES_A_CELL = re.compile(r"\bcell \d")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one notebook."""

    plain: str
    piped: str
    words: tuple[str, ...]  # warnings, refusals, and what steps said, that name a cell

    @property
    def same(self) -> bool:
        return self.plain == self.piped

    @property
    def silently_different(self) -> bool:
        return not self.same and not self.words


class Comparer:
    """Runs notebooks both ways."""

    def __init__(self, plain: subprocess.Popen[str], step: subprocess.Popen[str]) -> None:
        self._plain, self._step = plain, step

    def compare(self, folder: Path, cells: Cells) -> Outcome:
        """Run a notebook both ways; `note` is there in every cell."""
        cells = [("imports", NOTE), *cells]
        plain = self.run_plain(folder, [text for _tags, text in cells])
        try:
            pipeline = read_pipeline(write_book(folder / "book.ipynb", cells), {})
        except InvalidNotebook as refused:
            return Outcome(plain=plain, piped="refused", words=(str(refused),))
        return Outcome(plain, *self.run_piped(folder, pipeline))

    def run_plain(self, folder: Path, cells: Sequence[str]) -> str:
        work = folder / "plain"
        work.mkdir(parents=True)
        notes = folder / "plain.txt"
        _ask(
            self._plain,
            cells=cells,
            cwd=str(work),
            env={"NOTES": str(notes)},
            out=str(folder / "plain.out"),
            err=str(folder / "plain.err"),
        )
        return _read(notes)

    def run_piped(self, folder: Path, pipeline: Pipeline) -> tuple[str, tuple[str, ...]]:
        kept = new_folder(folder / "run-1")
        notes, words = folder / "piped.txt", list(pipeline.warnings)
        for step in pipeline.steps:
            try:
                sources = sources_of(pipeline, step, kept)
            except InvalidNotebook as refused:
                return _read(notes), (*words, str(refused))
            output = kept.results(step.name)
            output.mkdir(parents=True)
            code = _ask(
                self._step,
                specification=specification(pipeline, step, kept, sources.entries),
                cwd=str(kept.work),
                path=[],
                env={"NOTES": str(notes), "ECHELON_OUTPUT": str(output)},
                out=str(folder / "piped.out"),
                err=str(folder / "piped.err"),
            )
            if code:
                failure = json.loads(_read(output / "failure.json") or '{"error": "?", "cell": 0}')
                said = f"cell {failure['cell']}: {failure['error']}"
                if "cannot be handed on" in said:
                    words.append(said)
                with notes.open("a") as file:
                    file.write(f"{failure['error'].partition(':')[0]} in cell {failure['cell']}\n")
                break
        words += [line for line in _read(folder / "piped.err").splitlines() if line.startswith("echelon: ")]
        return _read(notes), tuple(word for word in words if _NAMES_A_CELL.search(word))


@contextmanager
def comparer() -> Iterator[Comparer]:
    """The servers, ended afterwards."""
    program = str(Path(__file__).with_name("forking.py"))
    started = [
        subprocess.Popen(
            [sys.executable, program, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for kind in ("plain", "step")
    ]
    try:
        yield Comparer(*started)
    finally:
        for process in started:
            process.communicate()


def _ask(server: subprocess.Popen[str], **request: Any) -> int:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
