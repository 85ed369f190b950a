"""What workers use while they run, and a gang that does nothing."""

from __future__ import annotations

import pytest
from tests.conftest import wait_until
from tests.engines.conformance.harness import PATIENCE, Harness, start

from echelon.errors import RunStuck


class SamplingConformance:
    """Samples and stalls."""

    def test_what_workers_use_is_told_while_they_run(self, harness: Harness) -> None:
        run = start(harness, "lasts.py", workers=2)

        def sampled() -> bool:
            return all(worker.memory is not None for worker in run.usage().workers)

        wait_until(sampled, "a sample of each worker")
        usage = run.usage()
        assert [(each.worker, each.state) for each in usage.workers] == [(0, "running"), (1, "running")]
        assert [[rank.rank for rank in each.ranks] for each in usage.workers] == [[0], [1]]
        assert all(each.node for each in usage.workers)
        assert [each.kind for each in run.why()] == ["running"]
        with run.live_usage() as live:
            wait_until(lambda: live.now().workers[1].memory is not None, "the same, live")
            assert not live.ended.is_set()
            run.stop()
            wait_until(live.ended.is_set, "the end, live")
            assert live.now().state == "stopped"
        ended = run.usage()
        assert (ended.state, [each.cpus for each in ended.workers]) == ("stopped", [None, None])
        assert "stopped" in [each.kind for each in run.why()], "in a cluster it may also keep its results"

    @pytest.mark.slow
    def test_a_gang_that_neither_prints_nor_computes_is_stuck(self, harness: Harness) -> None:
        run = start(harness, "lasts.py", workers=2, stall=2.0, restarts=1)
        status = run.wait(PATIENCE)
        assert (status.state, status.exit_code, status.restarts) == ("failed", RunStuck.exit_code, 1)
        assert status.root_cause is not None
        assert (status.root_cause.kind, status.root_cause.rank) == ("stuck", None)
        assert "2 s" in status.root_cause.summary
        assert {"failed", "restarts"} <= {each.kind for each in run.why()}

    @pytest.mark.slow
    def test_one_that_computes_without_a_word_is_not(self, harness: Harness) -> None:
        status = start(harness, "computes.py", workers=1, stall=2.0).wait(PATIENCE)
        assert (status.state, status.exit_code) == ("succeeded", 0)
