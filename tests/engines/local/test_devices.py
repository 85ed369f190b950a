"""What `nvidia-smi` says, and what becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.nvidia_smi import GIB, StandIn, uuid

from echelon.engines.local import devices
from echelon.engines.local.devices import GpuReading, choose_visible, holder_of, read_gpus, to_gpus


def reading(index: int, *, used: int = 0, processes: tuple[tuple[int, str], ...] = ()) -> GpuReading:
    return GpuReading(
        index=str(index), uuid=uuid(index), model="NVIDIA A100", memory=80 * 2**30, used=used, utilization=0,
        processes=processes,
    )  # fmt: skip


@pytest.fixture
def smi(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path / "driver")


def read(smi: StandIn, **more: str) -> list[GpuReading]:
    return read_gpus({"PATH": f"{smi.folder}:/bin:/usr/bin", **more})


def test_gpus_and_their_processes(smi: StandIn) -> None:
    smi.show(2, models=("NVIDIA A100-SXM4-80GB", "Tesla T4"), used=(0, 3 * GIB))
    smi.compute((1, 4711, "/usr/bin/python3.11"), (1, 4712, "blender"))
    first, second = read(smi)
    assert (first.index, first.uuid, first.model, first.memory, first.used) == (
        "0", uuid(0), "NVIDIA A100-SXM4-80GB", 80 * 2**30, 0,
    )  # fmt: skip
    assert second.processes == ((4711, "python3.11"), (4712, "blender"))
    assert (second.used, second.utilization) == (3 * 2**30, 0)


def test_no_nvidia_smi(tmp_path: Path) -> None:
    assert read_gpus({"PATH": str(tmp_path)}) == []
    assert read_gpus({}) == [] or os.defpath  # without a PATH the system's own is looked at


@pytest.mark.parametrize(
    "body",
    [
        "echo 'NVIDIA-SMI has failed because it could not communicate with the driver.'; exit 9",
        "echo No devices were found; exit 6",
        "echo No devices were found",
        "kill -9 $$",
        "true",
    ],
)
def test_a_driver_that_does_not_answer(smi: StandIn, body: str) -> None:
    (smi.folder / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
    assert read(smi) == []


def test_a_driver_that_hangs(smi: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_PATIENCE", 0.2)
    (smi.folder / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 600\n")
    assert read(smi) == []


def test_what_the_driver_does_not_tell(smi: StandIn) -> None:
    (smi.folder / "gpus.csv").write_text(
        f"0, {uuid(0)}, NVIDIA A100 MIG, [N/A], [N/A], [N/A]\n"
        f"1, {uuid(1)}, GRID T4, 16384, 0, [Not Supported]\n"
        "\n"
        "garbage\n"
    )
    (smi.folder / "apps.csv").write_text(f"{uuid(1)}, [Insufficient Permissions], [N/A]\n[N/A]\n")
    first, second = read(smi)
    assert (first.memory, first.used, first.utilization, second.utilization) == (0, 0, None, None)
    assert second.processes == ()
    assert [gpu.holder for gpu in to_gpus([first, second], {})] == [None, None]


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        ("0", ["0"]),
        ("2,0", ["2", "0"]),
        (" 1 , 2 ", ["1", "2"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
        ("0,7,1", ["0"]),
        ("NoDevFiles", []),
        (uuid(2), ["2"]),
        (f"{uuid(2)[:12]},0", ["2", "0"]),
        ("GPU-", []),  # of which several begin so
        ("1,1,2", ["1"]),
    ],
)
def test_an_outer_choice(smi: StandIn, visible: str, chosen: list[str]) -> None:
    smi.show(3)
    assert [gpu.index for gpu in read(smi, CUDA_VISIBLE_DEVICES=visible)] == chosen


@given(st.lists(st.integers(0, 7), unique=True), st.lists(st.sampled_from(["x", "9", "-1"]), max_size=2))
def test_a_choice_keeps_its_order_and_ends_at_the_first_unknown(known: list[int], unknown: list[str]) -> None:
    gpus = [reading(index) for index in range(8)]
    words = [str(number) for number in known]
    assert [
        gpu.index for gpu in choose_visible(gpus, ",".join([*words, *unknown, "0"] if unknown else words))
    ] == words


def test_who_has_a_gpu() -> None:
    held = {"0": "fm"}
    ours = ((10, "python"),)
    assert holder_of(reading(0), held, frozenset()) == "fm"
    assert holder_of(reading(1), held, frozenset()) is None
    assert (
        holder_of(reading(1, processes=((9, "blender"), *ours)), held, frozenset({10})) == "blender (pid 9)"
    )
    assert holder_of(reading(1, processes=ours), held, frozenset({10})) is None
    assert holder_of(reading(1, used=30 * 2**30), held, frozenset()) == "an unknown process"
    assert holder_of(reading(1, used=2**30), held, frozenset()) is None  # a display, a driver


@given(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
def test_only_what_nobody_has_is_free(held: set[int], busy: set[int]) -> None:
    readings = [reading(n, processes=((n + 1, "python"),) if n in busy else ()) for n in range(8)]
    free = {int(gpu.id) for gpu in to_gpus(readings, {str(n): "fm" for n in held}) if gpu.holder is None}
    assert free == set(range(8)) - held - busy


def test_the_machine() -> None:
    assert 1 <= devices.count_cpus() <= (os.cpu_count() or 1)
    assert devices.total_memory() > 2**28
