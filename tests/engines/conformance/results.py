"""That results can be had, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.conformance.harness import PATIENCE, Harness, start

from echelon.errors import (
    InvalidJob,
)


class ResultConformance:
    """That results can be had, and nothing else."""

    # Results

    @pytest.mark.core
    def test_fetching_results(self, harness: Harness, tmp_path: Path) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        to = tmp_path / "fetched"
        weights = bytes(range(256))
        assert run.get("notes.txt", to=to) == to / "notes.txt"
        assert (to / "notes.txt").read_text() == "all is well"
        assert run.get("model/weights.bin", to=to) == to / "weights.bin"
        assert (to / "weights.bin").read_bytes() == weights
        assert run.get("model", to=to) == to / "model"
        assert (to / "model" / "weights.bin").read_bytes() == weights
        everything = tmp_path / "everything"
        assert run.get(".", to=everything) == everything
        assert (everything / "model" / "weights.bin").read_bytes() == weights
        assert (everything / "notes.txt").read_text() == "all is well"
        (to / "notes.txt").write_text("older")
        run.get("notes.txt", to=to)
        assert (to / "notes.txt").read_text() == "all is well"

    def test_fetching_what_a_pattern_names(self, harness: Harness, tmp_path: Path) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        to = tmp_path / "fetched"
        assert run.get_matching("model/*.bin", to) == [to / "weights.bin"]
        assert (to / "weights.bin").read_bytes() == bytes(range(256))
        assert run.get_matching("*/*.bin", to) == [to / "model" / "weights.bin"]
        assert run.get_matching("[mn]o*", to) == [to / "model", to / "notes.txt"]
        (home,) = run.get_matching("mod*/*.bin")
        assert home.read_bytes() == bytes(range(256))
        assert home.parts[-2:] == ("model", "weights.bin")
        for pattern in ("no/*.txt", "*.csv"):
            with pytest.raises(InvalidJob, match="among the results"):
                run.get_matching(pattern, to)

    def test_results_without_a_target_come_to_where_they_belong(self, harness: Harness) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        assert run.get("model/weights.bin").read_bytes() == bytes(range(256))
        assert (run.get() / "notes.txt").read_text() == "all is well"

    @pytest.mark.core
    @pytest.mark.parametrize("path", ["../secret.txt", "model/../../secret.txt", "/etc/hostname", ".."])
    def test_nothing_outside_the_results_is_fetched(
        self, harness: Harness, tmp_path: Path, path: str
    ) -> None:
        engine = harness.engine
        ref = engine.record(harness.job("writes.py"), None)
        outside = Path(engine.read(ref).results).absolute().parent
        outside.mkdir(parents=True, exist_ok=True)
        (outside / "secret.txt").write_text("not yours")
        with pytest.raises(InvalidJob, match="outside the results"):
            engine.fetch(ref, path, tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()

    def test_a_result_that_is_not_there(self, harness: Harness, tmp_path: Path) -> None:
        run = start(harness, "writes.py")
        run.wait(PATIENCE)
        with pytest.raises(InvalidJob, match="no-such-file"):
            run.get("no-such-file", to=tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()
