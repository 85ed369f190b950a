"""Runs beside each other on the dashboard, and a sweep's table of trials."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ui.chromium import start_visitor, the_chromium
from tests.ui.test_browser import ended, start_dashboard

from echelon.errors import InvalidJob, UnknownRun
from echelon.ui.reading import Reading

Call = Callable[..., subprocess.CompletedProcess[str]]
TRAIN = "import sys\nfor step in range(3):\n    print(f'step={step} loss={-float(sys.argv[1]) * step / 2}')\n"


def sweep(call: Call) -> None:
    Path("train.py").write_text(TRAIN)
    words = ["x=1,2,3", "--minimize", "loss", "--name", "tune", "--", "--snapshot", "train.py", "{x}"]
    assert call("sweep", *words).returncode == 0


@pytest.mark.slow
def test_what_a_page_gets(cli: Call, home: Path) -> None:
    from echelon.engines.local.engine import LocalEngine

    sweep(cli)
    reading = Reading(LocalEngine())
    found = reading.compare(["tune-1", "tune-3"])
    assert [each["name"] for each in found["compared"]["differences"]] == ["x"]
    (chart,) = found["charts"]
    assert [(curve["label"], curve["y"][-1]) for curve in chart["curves"]] == [("tune-1", -1), ("tune-3", -3)]
    for names in (["tune-1"], ["tune-1", "tune-1"], [str(number) for number in range(21)]):
        with pytest.raises(InvalidJob, match="are not 2 to 20 runs"):
            reading.compare(names)
    with pytest.raises(UnknownRun):
        reading.compare(["tune-1", "nobody"])


@pytest.mark.slow
def test_in_a_browser(cli: Call, home: Path, tmp_path: Path) -> None:
    chromium = the_chromium()
    sweep(cli)
    said = tmp_path / "said"
    dashboard, address = start_dashboard()
    with said.open("w") as out, ended(dashboard):
        visitor = start_visitor("visit_sweep", chromium, address, tmp_path, out=out)
        with ended(visitor):
            assert visitor.wait(120) == 0, said.read_text()
