from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.model.examples import EXAMPLES, OF_A_COMMAND, settings_of

from echelon.errors import InvalidJob
from echelon.jobfile import read_job_file, settings_from
from echelon.jobfile.writing import job_file_of
from echelon.model.job import Job
from echelon.model.meaning import JOB_FIELDS, to_job, to_settings
from echelon.model.settings import NAMES, RoleSettings, Settings, merge
from echelon.preparation.pods import settle_pods

FORMER_TOO = pytest.mark.filterwarnings("ignore::echelon.model.former.FormerName")
ALL = [each for examples in EXAMPLES.values() for each in examples]


def test_the_examples_are_of_every_setting() -> None:
    assert set(EXAMPLES) | OF_A_COMMAND == set(NAMES)
    assert {each.name for each in fields(RoleSettings)} <= EXAMPLES["roles"][-1]["roles"]["ps"].keys()
    assert len({each.at for each in JOB_FIELDS}) == len(JOB_FIELDS)


@FORMER_TOO
@pytest.mark.parametrize("example", [each for examples in EXAMPLES.values() for each in examples], ids=str)
def test_it_reads_as_the_same_job(tmp_path: Path, example: dict[str, Any]) -> None:
    job = to_job(settings_of(example), name="fm")
    text = job_file_of(job)
    assert "#" not in text
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert to_job(read_job_file(path), name="another") == job
    in_a_cluster = settle_pods(job, Settings(), tmp_path)
    assert (
        settle_pods(to_job(to_settings(in_a_cluster), name="another"), Settings(), tmp_path) == in_a_cluster
    )


@FORMER_TOO
@given(st.lists(st.sampled_from(ALL), max_size=6))
def test_so_do_settings_together(examples: list[dict[str, Any]]) -> None:
    settings = Settings(name="fm")
    for each in examples:
        settings = merge(settings, settings_from({**each, "name": None, "script": None}, source="a test"))
    has_own = settings.module is not None or settings.command is not None
    what_runs: dict[str, Any] = {} if has_own else {"script": "t.py"}
    try:
        job = to_job(merge(settings, Settings(**what_runs)), name="fm")
    except InvalidJob:
        assume(False)
        raise
    assert to_job(to_settings(job), name="another") == job


def test_what_it_cannot_say_is_a_comment(tmp_path: Path) -> None:
    job = to_job(settings_of({"total_gpus": "4..8", "roles": {"ps": 1}}), name="fm")
    settled = replace(
        job,
        python="/usr/bin/python3",
        cwd="/home/ann",
        pod=replace(job.pod, patch={"spec": {"hostPID": True}}),
    )
    text = job_file_of(settled)
    assert "# pod:\n#   patch:" in text
    assert "/home/ann\n" not in text  # found anew by every run
    assert "python3" not in text
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert to_job(read_job_file(path), name="another") == job
    assert job_file_of(Job(name="fm", script="t.py")) == "name: fm\nscript: t.py\n"
