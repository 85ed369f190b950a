"""The page of exit codes names every error of echelon with its code, and nothing that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from echelon.errors import EchelonError

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def errors_below(kind: type[EchelonError]) -> Iterator[type[EchelonError]]:
    """The errors that `echelon.errors` defines; other modules may refine them without a code of their own."""
    for each in kind.__subclasses__():
        if each.__module__ == "echelon.errors":
            yield each
        yield from errors_below(each)


def test_every_error_has_its_code_on_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| \S.* \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    there = {error.__name__: error.exit_code for error in errors_below(EchelonError)}
    assert {name: int(code) for code, name in rows} == there
    assert len(rows) == len(there) >= 13
