"""How many CPUs are ours, by every way that a container can be told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echelon.agent import surroundings
from echelon.agent.surroundings import complete, threads, usable_cpus

UNIFIED = "0::/pods/one\n"
BOTH = "12:cpu,cpuacct:/pods/one\n5:memory:/pods/one\n0::/unified\n"

# (/proc/self/cgroup, files, the limit)
LIMITS = [
    ("", {}, None),
    (UNIFIED, {}, None),
    (UNIFIED, {"cpu.max": "max 100000\n"}, None),
    (UNIFIED, {"cpu.max": "150000 100000\n"}, 1.5),  # a namespace of its own: we are at the top
    (UNIFIED, {"pods/one/cpu.max": "50000 100000\n"}, 0.5),
    (UNIFIED, {"pods/one/cpu.max": "max 100000\n", "pods/cpu.max": "25000 100000\n"}, 0.25),
    (UNIFIED, {"pods/one/cpu.max": "garbage\n", "cpu.max": "1 0\n"}, None),
    ("0::/../../elsewhere\n", {"elsewhere/cpu.max": "50000 100000"}, 0.5),
    (BOTH, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    (BOTH, {"cpu/cpu.cfs_quota_us": "75000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.75),
    (
        BOTH,
        {
            "cpu,cpuacct/pods/one/cpu.cfs_quota_us": "10000",
            "cpu,cpuacct/pods/one/cpu.cfs_period_us": "100000",
        },
        0.1,
    ),
    ("\xff\xfe:::\nnonsense\n", {"cpu.max": "1 1"}, None),
]


@pytest.mark.parametrize(("groups", "files", "limit"), LIMITS)
def test_limits_of_control_groups(
    tmp_path: Path, groups: str, files: dict[str, str], limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert usable_cpus(str(tmp_path)) == (64 if limit is None else limit)


@pytest.mark.parametrize(
    ("cpus", "procs", "expected"), [(8, 2, 4), (8, 3, 2), (1.5, 1, 1), (0.25, 4, 1), (64, 1, 64)]
)
def test_a_rank_gets_its_share(
    monkeypatch: pytest.MonkeyPatch, cpus: float, procs: int, expected: int
) -> None:
    monkeypatch.setattr(surroundings, "usable_cpus", lambda: cpus)
    assert threads(procs) == expected


def test_a_system_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cpus("/nonexistent") == 3


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "USER": "me", "TMPDIR": str(tmp_path)}
    complete(env, str(tmp_path / "state"))
    assert env == {"HOME": str(tmp_path), "USER": "me", "TMPDIR": str(tmp_path)}
    assert not (tmp_path / "state").exists()


def test_what_is_missing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    monkeypatch.setattr(surroundings, "_is_ours", lambda _folder: False)
    env: dict[str, str] = {}
    complete(env, str(tmp_path / "state"))
    assert env == {
        "HOME": str(tmp_path / "state/home"),
        "TMPDIR": str(tmp_path / "state/tmp"),
        "USER": "echelon",
        "LOGNAME": "echelon",
    }
    assert all(Path(env[key]).stat().st_mode & 0o077 == 0 for key in ("HOME", "TMPDIR"))
