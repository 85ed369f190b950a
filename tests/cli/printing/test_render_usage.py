"""How `top RUN` marks a rank that keeps the others waiting, and how reasons are printed."""

from __future__ import annotations

import json

import pytest

from echelon.cli.printing.render_usage import reasons, run_usage
from echelon.model.engine.sample import GpuSample, Lateness, RankSample
from echelon.model.engine.usage import RunUsage, WorkerUse
from echelon.observation.reasons import Reason

HOT = GpuSample(
    gpu="1", busy=99, clock=1095, clock_most=1980, temperature=91, slowed=("HW thermal slowdown",)
)


def ranks(*waits: float) -> tuple[RankSample, ...]:
    return tuple(
        RankSample(
            rank=number,
            cpus=1.0,
            memory=1 << 20,
            late=Lateness(collectives=300, last=each, mean=0.038, waits=each),
        )
        for number, each in enumerate(waits)
    )


def usage(*workers: WorkerUse) -> RunUsage:
    return RunUsage(name="fm", state="running", workers=workers)


def test_the_rank_in_its_row_and_a_sentence_below(capsys: pytest.CaptureFixture[str]) -> None:
    cool = GpuSample(gpu="0", busy=99, clock=1980, clock_most=1980)
    worker = WorkerUse(
        worker=0, role="worker", state="running", cpus=2.0, ranks=ranks(0.01, 0.97), gpus=(cool, HOT)
    )
    run_usage(usage(worker), "text")
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].endswith("LATE")
    assert [line.endswith("38 ms, last in 97%") for line in lines[3:6]] == [False, False, True]
    assert lines[-1] == (
        "rank 1 comes last in 97% of collectives, 38 ms late; the others wait for it 97% of the time:"
        " its GPU is throttled (HW thermal slowdown, 91 °C), at 1,095 of 1,980 MHz"
    )


def test_without_one_there_is_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    worker = WorkerUse(worker=0, role="worker", state="running", cpus=2.0, ranks=ranks(0.02, 0.03))
    run_usage(usage(worker), "text")
    assert "LATE" not in capsys.readouterr().out


def test_reasons_for_people_and_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Reason(kind="failed", text="it failed:\x1b[2J no", details=("a",), hint="b", part="train")]
    reasons("book", "local://book", found, "text")
    text = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in text[1:]] == ["step train: it failed:\\x1b[2J no", "a", "hint: b"]
    reasons("book", "local://book", found, "json")
    told = json.loads(capsys.readouterr().out)
    assert (told["uri"], told["reasons"][0]["part"]) == ("local://book", "train")
