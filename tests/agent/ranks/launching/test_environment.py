"""What a rank finds around it: its share of the CPUs, a home, a name, a place for temporary files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echelon.agent.ranks.launching import environment
from echelon.agent.ranks.launching.environment import complete, threads, usable_cpus


@pytest.mark.parametrize(("limit", "expected"), [("max", 64), ("150000", 1.5)])
def test_a_limit_makes_cpus_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expected: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))
    for name, text in (("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", f"{limit} 100000\n")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert usable_cpus(str(tmp_path)) == expected


@pytest.mark.parametrize(
    ("cpus", "procs", "expected"), [(8, 2, 4), (8, 3, 2), (1.5, 1, 1), (0.25, 4, 1), (64, 1, 64)]
)
def test_a_rank_gets_its_share(
    monkeypatch: pytest.MonkeyPatch, cpus: float, procs: int, expected: int
) -> None:
    monkeypatch.setattr(environment, "usable_cpus", lambda: cpus)
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
    monkeypatch.setattr(environment, "_is_ours", lambda _folder: False)
    env: dict[str, str] = {}
    complete(env, str(tmp_path / "state"))
    assert env == {
        "HOME": str(tmp_path / "state/home"),
        "TMPDIR": str(tmp_path / "state/tmp"),
        "USER": "echelon",
        "LOGNAME": "echelon",
    }
    assert all(Path(env[key]).stat().st_mode & 0o077 == 0 for key in ("HOME", "TMPDIR"))
