"""A trial's values in its job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelon.model.job import Job, Role
from echelon.model.resources import Resources
from echelon.sweeps.filling import filled, without_place

BRACES = st.text('{}lrbs"x', max_size=8)


def test_values_are_in_arguments_variables_and_roles() -> None:
    job = Job(
        name="fm",
        script="train.py",
        args=("--lr", "{lr}", "--out={output}/{lr}-{bs}", '{"lr": {other}}'),
        env={"RATE": "{lr}"},
        roles=(Role(name="ps", workers=1, resources=Resources(), command=("ps", "{bs}"), args=("{lr}",)),),
    )
    made = filled(job, {"lr": "1e-3", "bs": "{lr}"})
    assert made.args == ("--lr", "1e-3", "--out={output}/1e-3-{lr}", '{"lr": {other}}')
    assert made.env == {"RATE": "1e-3", "ECHELON_PARAM_LR": "1e-3", "ECHELON_PARAM_BS": "{lr}"}
    assert (made.roles[0].command, made.roles[0].args) == (("ps", "{lr}"), ("1e-3",))
    assert without_place(job, ["lr", "bs", "other", "seed"]) == ["seed"]


@given(BRACES)
def test_other_braces_are_the_users(text: str) -> None:
    job = Job(name="fm", command=(text,))
    assert filled(job, {"lr": "1"}).command == (text.replace("{lr}", "1"),)
