"""Where the results of a run are, and what a user should know of it before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echelon.engines.kubernetes.files.results.whereabouts import (
    note_on_checkpoints,
    note_on_restarts,
    without_linger,
)
from echelon.model.job import Job
from echelon.model.pods.pod import Keeper, Output, PodOptions, parse_mount


def of_pods(**options: Any) -> Job:
    return Job(name="fm", script="train.py", restarts=2, pod=PodOptions(**options))


@pytest.mark.parametrize(
    ("job", "warned"),
    [
        (of_pods(), True),
        (of_pods(mounts=(parse_mount("pvc:data:/data:ro"), parse_mount("emptydir::/e"))), True),
        (of_pods(mounts=(parse_mount("pvc:ckpt:/ckpt"),)), False),
        (of_pods(output=Output()), False),
        (of_pods(checkpoints="ckpt", keeper=Keeper()), False),
        (replace(of_pods(), restarts=0), False),
    ],
)
def test_who_restarts_without_a_volume_is_warned(job: Job, warned: bool) -> None:
    note = note_on_restarts(job)
    assert (note is not None) is warned
    assert note is None or ("--checkpoints" in note and "--output" in note)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (of_pods(), None),
        (of_pods(checkpoints="ckpt", keeper=Keeper()), None),
        (replace(of_pods(checkpoints="ckpt", keeper=Keeper()), restarts=0), "--restarts N"),
        (of_pods(checkpoints="ckpt", output=Output()), "is on the volume of --output"),
        (replace(of_pods(checkpoints="ckpt", output=Output()), restarts=0), "is on the volume of --output"),
        (replace(of_pods(checkpoints="ckpt", keeper=Keeper()), resume=True), "are not sent to the pods"),
    ],
)
def test_who_keeps_checkpoints_is_told_what_else_they_need(job: Job, said: str | None) -> None:
    note = note_on_checkpoints(job)
    assert note is None if said is None else note is not None and said in note


def test_without_the_right_to_fetch_workers_do_not_linger_unless_the_user_said_so() -> None:
    assert without_linger(of_pods()).pod.linger == 0
    assert without_linger(of_pods(linger=3600.0)).pod.linger == 3600.0
