"""`make test` itself: what is rerun, and what is told at the end; tried on real runs of small tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts
from tests.summary import FAILURES

TESTS = """
import os, pathlib, pytest

@pytest.mark.load_sensitive("it counts milliseconds")
def test_once():
    flag = pathlib.Path(__file__).with_name("flag")
    if not flag.exists():
        flag.touch()
        assert False

@pytest.mark.load_sensitive("it never passes")
def test_never():
    assert "never" not in os.environ.get("WANTED", "")

def test_broken():
    assert "broken" not in os.environ.get("WANTED", "")

@pytest.mark.parametrize("number", range(5))
def test_skipped_in_the_test(number):
    pytest.skip("needs root")

@pytest.mark.skipif(True, reason="needs root")
def test_skipped_by_mark():
    pass

@pytest.mark.xfail(reason="known", strict=True)
def test_known():
    assert False

def test_skipped_for_another_reason():
    pytest.skip("needs Python 3.8")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_small.py").write_text(TESTS)
    return tmp_path


def command(project: Path) -> list[str]:
    marks = "markers=load_sensitive(reason): as in pyproject.toml"
    options = ["-p", "xdist", "-p", "tests.summary", "-p", "no:cacheprovider", "-o", marks, "-c", os.devnull]
    return [sys.executable, "-m", "pytest", str(project), *options]


def environment(**more: str) -> dict[str, str]:
    """Without the plugins that these small tests need not: they take most of the time."""
    here = {"PYTHONPATH": str(Path(parts.__file__).parents[1]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return os.environ | here | more


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_summary(project: Path, processes: str) -> None:
    env = environment(WANTED="broken", **{FAILURES: str(project / "failures")})
    words = [*command(project), "-n", processes, "-k", "once or skipped or broken"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("skipped ")]
    assert said == ["skipped 1: needs Python 3.8", "skipped 6: needs root"]
    failures = json.loads((project / "failures").read_text())
    by_name = {name.rpartition("::")[2]: why for name, why in failures.items()}
    assert by_name == {"test_once": "it counts milliseconds", "test_broken": None}


@pytest.mark.parametrize(
    ("wanted", "rerun", "failed"),
    [("", ["test_once"], []), ("never", ["test_once", "test_never"], ["local"]), ("broken", [], ["local"])],
)
def test_what_is_rerun(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    wanted: str,
    rerun: list[str],
    failed: list[str],
) -> None:
    monkeypatch.setenv("WANTED", wanted)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(parts, "command", lambda _name: [*command(project), "-n", "2"])
    monkeypatch.chdir(project)
    account = parts.Account()
    parts.run_together(["local"], account)
    account.print()
    told = capfd.readouterr().out
    assert [name.rpartition("::")[2] for name in account.rerun] == rerun
    assert account.failed == failed
    assert f"rerun alone: {len(rerun)}" in told
    for name in rerun:
        assert f"::{name} is rerun alone, since it " in told


def test_parts_of_the_cluster_collect_no_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(parts.__file__).parents[1])
    assert parts.places("local") == parts.places("checks") == parts.places("builds") == []
    found = parts.places("cluster")
    assert found == parts.places("alone") == parts.places("restarts")
    assert "tests/faults/kubernetes/test_pods.py" in found
    assert "tests/model/test_job.py" not in found


def test_a_run_that_broke_off_is_not_rerun() -> None:
    """Only pytest's own code for failed tests says that the list of failures is whole."""
    assert parts.deserve_rerun(1, {"a": "why", "b": "why"}) == ["a", "b"]
    assert parts.deserve_rerun(1, {"a": "why", "b": None}) == []
    for code in (0, 2, 3, 4, 5, -9):
        assert parts.deserve_rerun(code, {"a": "why"}) == []
