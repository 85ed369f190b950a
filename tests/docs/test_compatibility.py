"""The versions on the page about compatibility are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from echelon.agent import task
from echelon.model import run

PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")


def schema_of(what: str) -> int:
    """The last cell of the row about that, in the table of what is written and read."""
    found = re.search(rf"^\| {what}\b.* \| schema (\d+) \|$", PAGE, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_the_schemas_of_records_and_tasks() -> None:
    assert schema_of("record of a run") == run.SCHEMA
    assert schema_of("task") == task.SCHEMA
