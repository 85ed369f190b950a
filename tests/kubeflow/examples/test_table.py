"""The table in the documents of Kubeflow's own examples is what is found in its modules; each manifest of a
kind that echelon runs is also written as a job file, and planned.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kubeflow.examples.judging import GPU, RUNS, all_rows, read
from tests.kubeflow.examples.sources import CLIENT, MODULES, Example, files
from tests.kubeflow.examples.ways import NOTEBOOKS, WAYS

from echelon.admission import find_plan
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import one_node
from echelon.errors import InvalidJob
from echelon.jobfile import read_job_file
from echelon.jobfile.writing import write_job_file
from echelon.model.job import validate
from echelon.model.meaning import to_job
from echelon.model.plan import Plan

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "coming-from-kubeflow.md"
SOURCES = [*MODULES, CLIENT]
HEAD = "| from | what | outcome | files |\n|---|---|---|---|\n"


def test_the_table_in_the_documents_is_true() -> None:
    rows = all_rows()
    order = sorted(
        rows, key=lambda row: (SOURCES.index(row[0].partition(" ")[0]), row[1], row[2] != RUNS, row)
    )
    lines = [f"| {' | '.join(row)} | {rows[row]} |" for row in order]
    table = HEAD + "\n".join(lines) + "\n"
    text = PAGE.read_text()
    before, head, after = text.partition(HEAD)
    there = head + after[: after.index("\n\n") + 1]
    if os.environ.get("ECHELON_WRITE_GOLDEN"):
        PAGE.write_text(before + table + after[after.index("\n\n") + 1 :])
    else:
        assert there == table, "ECHELON_WRITE_GOLDEN=1 writes the table again"
    assert sum(count for row, count in rows.items() if row[2] == RUNS) == len(WAYS) + len(NOTEBOOKS) + 1
    assert any(GPU in row[2] for row in rows)


def jobs() -> list[Example]:
    """The manifests that are read."""
    found = []
    for example in files("yaml"):
        try:
            read(example)
        except InvalidJob:
            continue
        found.append(example)
    return found


def test_every_job_is_the_same_as_a_job_file_and_has_a_plan(home: Path) -> None:
    assert home is not None
    roomy = MemoryEngine(cluster=one_node(gpus=8))
    found = jobs()
    assert len(found) >= 20
    for example in found:
        manifest = read(example)
        job = to_job(manifest.settings, name="example")
        validate(job)
        Path("job.yaml").write_text(write_job_file(manifest.settings))
        assert to_job(read_job_file(Path("job.yaml")), name="example") == job, example.key
        plan = find_plan(job, roomy)
        assert isinstance(plan, Plan), (example.key, plan)
