"""What a tracker is told of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echelon.model.job import Job
from echelon.model.run import Record, RunRef
from echelon.model.tracking import Tracking
from echelon.tracking.facts import facts_of, is_secret, parameters_of


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--lr", "1e-3", "--epochs=3"], {"lr": "1e-3", "epochs": "3"}),
        (["--fast", "--layers", "1", "2", "-b", "8"], {"fast": "true", "layers": "1 2", "b": "8"}),
        (["--shift", "-1", "--scale", "-1e-3"], {"shift": "-1", "scale": "-1e-3"}),
        (["data", "model.depth=4", "+seed=1", "--last"], {"model.depth": "4", "seed": "1", "last": "true"}),
        (["--a", "1", "--", "x"], {"a": "1"}),
        (["--lr=1", "--lr", "2"], {"lr": "2"}),
        (["--password", "hunter2", "--hf-token=abc", "apiKey=abc", "--lr", "1"], {"lr": "1"}),
        (["--text", "a" * 600], {"text": "a" * 497 + "..."}),
        ([], {}),
    ],
)
def test_the_parameters_that_arguments_name(args: list[str], expected: dict[str, str]) -> None:
    assert dict(parameters_of(args)) == expected


def test_what_is_a_secret_by_its_name() -> None:
    assert [
        each for each in ("token", "wandb_api_key", "AWS-Secret", "dbPassword") if not is_secret(each)
    ] == []
    assert [each for each in ("max_tokens", "tokenizer", "key", "lr", "secretary") if is_secret(each)] == []


def record(**more: object) -> Record:
    job = Job(name="fm", script="train.py", tracking=Tracking(to="mlflow", commit="abc"))
    whole = Record(ref=RunRef(engine="local", name="fm"), job=job, created=5.0, owner="ann", user="ann")
    return replace(whole, **more)  # type: ignore[arg-type]


def test_a_run_that_is_resumed_is_the_same_and_another_of_its_name_is_not() -> None:
    first = record()
    tracking = Tracking(to="mlflow", began=first.created)
    resumed = record(created=9.0, job=replace(first.job, earlier=1, tracking=tracking))
    assert facts_of(first).id == facts_of(resumed).id
    assert facts_of(first).created == facts_of(resumed).created
    assert facts_of(first).id != facts_of(record(created=9.0)).id
    assert facts_of(first).id != facts_of(record(owner="bob")).id
    # The context is this machine's word for a cluster.
    in_cluster = RunRef(engine="k8s", name="fm", namespace="ns", context="there")
    assert facts_of(record(ref=in_cluster)).id == facts_of(record(ref=replace(in_cluster, context=None))).id
