"""Jobs suspended and resumed: what is done to their runs."""

from __future__ import annotations

import pytest

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.errors import InvalidJob
from echelon.kubeflow.sdk.jobs import carry_out
from echelon.model.job import Job
from echelon.model.pod import Output, PodOptions
from echelon.model.traits import Traits
from echelon.submit import Prepared, submit


class Remote(MemoryEngine):
    """Its workers write their results to a volume, or lose them."""

    traits = Traits(place="a remote engine", remote=True)


def test_a_run_that_could_not_go_on_is_not_suspended() -> None:
    lost = Job(name="lost", script="train.py", framework="plain")
    run = submit(Prepared(job=lost), Remote({"train.py": Act(lasts=True)}))
    with pytest.raises(InvalidJob, match="ends the run for good: its results are on no volume"):
        carry_out("suspend", run, lost)
    assert run.status().state == "running"
    kept = Job(name="lost", script="train.py", framework="plain", pod=PodOptions(output=Output(claim="a")))
    carry_out("suspend", run, kept)
    assert run.status().state == "stopped"
    carry_out("suspend", run, kept)
    carry_out(None, run, kept)
    assert run.status().state == "stopped"
