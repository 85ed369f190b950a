"""What is said of a folder of a volume that cannot be reserved."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.engines.kubernetes.prerequisites.outputs import note_on_output
from echelon.errors import Denied
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.settings import Settings


class Rights:
    """A cluster that only tells what its user may."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def may(self, verb: str, kind: str) -> bool:
        self.asked.append((verb, kind))
        if self.answer is None:
            raise Denied("you may not ask", hint="")
        return self.answer


def job(output: str | None) -> Job:
    return to_job(Settings(script="train.py", output=output), name="fm")


@pytest.mark.core
@pytest.mark.parametrize(("output", "there"), [("pvc:shelf/x/", "pvc:shelf/x"), ("pvc:shelf", "pvc:shelf")])
def test_who_may_not_list_records_is_told_that_the_folder_is_not_reserved(output: str, there: str) -> None:
    api: Any = Rights(False)
    said = note_on_output(api, job(output))
    assert said == (
        f"{there} is not reserved for this run: you may not list configmaps, so whether another run "
        "writes to it is not known"
    )
    assert api.asked == [("list", "ConfigMap")]


@pytest.mark.parametrize(
    ("output", "answer", "questions"),
    [("pvc:shelf/x", True, 1), ("pvc:shelf/x", None, 1), (None, False, 0), ("new:1Gi", False, 0)],
)
def test_nothing_is_said_where_it_is_reserved_or_nobody_else_writes(
    output: str | None, answer: bool | None, questions: int
) -> None:
    api: Any = Rights(answer)
    assert note_on_output(api, job(output)) is None
    assert len(api.asked) == questions
