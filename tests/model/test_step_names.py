"""Names of pipelines and steps that are too long are cut; the uncut one leads to the same run."""

from __future__ import annotations

import pytest

from echelon.model.job import is_name
from echelon.model.step_names import base_name, cut_names, run_name

LONG, STEP = "a-rather-long-notebook-name", "load_the_training_data"


@pytest.mark.parametrize("notebook", ["book", "v2-3-book", LONG])
@pytest.mark.parametrize("step", ["a", "load_data", "step-2-of-3", STEP, "a__b", "ends_"])
def test_uncut_names_lead_to_the_cut_ones(notebook: str, step: str) -> None:
    pipeline = f"{base_name(notebook)}-12"
    name = run_name(pipeline, step)
    assert is_name(name)
    for typed in (f"{notebook}-12-{step}", f"{pipeline}-{step}"):
        assert name in (typed, *cut_names(typed))
    assert pipeline in (f"{notebook}-12", *cut_names(f"{notebook}-12"))


def test_dashes_may_stand_for_underscores() -> None:
    name = run_name(f"{base_name(LONG)}-1", STEP)
    assert name in cut_names(f"{LONG}-1-{STEP.replace('_', '-')}")


@pytest.mark.parametrize("text", ["fm", "fm-1", "fm-1-load", "fm-abc", "-1", "1", ""])
def test_what_is_not_cut_has_no_other_name(text: str) -> None:
    assert all(len(name) < 10 for name in cut_names(text))
    if text.startswith("fm"):
        assert cut_names(text) == ()
