"""What `top` measures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.nvidia_smi import StandIn
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.usage import measure_usage


def test_an_idle_machine(home: Path) -> None:
    usage = measure_usage(LocalEngine())
    assert usage.runs == ()
    assert usage.cpus >= 1
    assert 0 < usage.memory_used < usage.memory
    assert not home.exists()


def test_a_run_that_computes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = StandIn(tmp_path / "driver")
    smi.show(2)
    monkeypatch.setenv("PATH", f"{smi.folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    Path("busy.py").write_text(
        "import os, pathlib\n"
        "block = bytearray(50_000_000)\n"
        "pathlib.Path('pid').write_text(str(os.getpid()))\n"
        "while True: pass\n"
    )
    run = echelon.run("busy.py", gpus=1, name="busy")
    wait_until(lambda: Path("pid").exists() and Path("pid").read_text(), "the rank")
    smi.compute((0, int(Path("pid").read_text()), "python3"))
    # The rank may be heard of before its agent's word that it runs is read.
    wait_until(lambda: measure_usage(LocalEngine()).runs[0].state == "running", "the run to be known to run")
    usage = measure_usage(LocalEngine())
    (use,) = usage.runs
    assert (use.name, use.state, use.gpus) == ("busy", "running", ("0",))
    wait_until(lambda: measure_usage(LocalEngine()).runs[0].cpus > 0, "it to get a share of a loaded machine")
    assert use.memory > 50_000_000
    assert use.processes >= 3
    assert [gpu.user for gpu in usage.gpus] == ["busy", None]
    run.stop(now=True)
    run.wait(PATIENCE)
    smi.compute()
    usage = measure_usage(LocalEngine())
    assert usage.runs == ()
    assert [gpu.user for gpu in usage.gpus] == [None, None]
