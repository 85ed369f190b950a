"""What the agent reads of its control groups, in both versions of them: CPUs, memory, and kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.agent.ranks.cgroups import cpu_limits, memory_kills, memory_limit

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


def lay_out(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(("groups", "files", "limit"), LIMITS)
def test_limits_of_cpus(tmp_path: Path, groups: str, files: dict[str, str], limit: float | None) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    assert min(cpu_limits(lay_out(tmp_path, files)), default=None) == limit


def second_version(root: Path, kills: int, limit: str) -> str:
    events = f"low 0\nhigh 0\nmax 3\noom {kills}\noom_kill {kills}\noom_group_kill 0\n"
    return lay_out(root, {"memory.events": events, "memory.max": f"{limit}\n"})


def first_version(root: Path, kills: int, limit: str) -> str:
    events = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
    return lay_out(root, {"memory/memory.oom_control": events, "memory/memory.limit_in_bytes": f"{limit}\n"})


@pytest.mark.parametrize("version", [first_version, second_version])
@pytest.mark.parametrize(
    ("limit", "words"),
    [("67108864", "64Mi"), ("3221225472", "3Gi"), ("1536", "1536"), ("10240", "10Ki")],
)
def test_kills_and_the_limit(tmp_path: Path, version: object, limit: str, words: str) -> None:
    root = version(tmp_path, 2, limit)  # type: ignore[operator]
    assert (memory_kills(root), memory_limit(root)) == (2, words)


def test_no_limit(tmp_path: Path) -> None:
    assert memory_limit(second_version(tmp_path / "second", 0, "max")) == ""
    assert memory_limit(first_version(tmp_path / "first", 0, "9223372036854771712")) == ""


def test_no_control_groups(tmp_path: Path) -> None:
    assert list(cpu_limits(str(tmp_path))) == []
    assert (memory_kills(str(tmp_path)), memory_limit(str(tmp_path))) == (0, "")
