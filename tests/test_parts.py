"""`make test` itself, tried on real runs of small tests: what is tried again, what fails it, what is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.fixtures import FOREIGN

from testbed import chromium, cluster
from tests import parts

TESTS = """
import os, pathlib, signal, time
import pytest

def fails_once(name):
    flag = pathlib.Path(__file__).with_name(name)
    if not flag.exists():
        flag.touch()
        assert False, "the first time"

def test_well():
    pass

@pytest.mark.once
def test_once():
    fails_once("flag")

@pytest.mark.often
@pytest.mark.parametrize("number", range(9))
def test_often(number):
    fails_once(f"flag-{number}")

@pytest.mark.always
def test_always():
    assert False, "every time"

@pytest.mark.dies
def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.hangs
def test_hangs():
    time.sleep(600)

@pytest.mark.parametrize("number", range(5))
def test_skipped_in_the_test(number):
    pytest.skip("needs root")

@pytest.mark.skipif(True, reason="needs root")
def test_skipped_by_mark():
    pass

def test_skipped_for_another_reason():
    pytest.skip("needs Python 3.8")
"""
MARKS = ("once", "often", "always", "dies", "hangs")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with tests of its own, and none of the plugins that they do not need."""
    (tmp_path / "test_small.py").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(parts.__file__).parents[1]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = "-p xdist -p pytest_timeout -p tests.summary -p no:cacheprovider"
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\naddopts = {plugins}\nmarkers =\n" + "".join(f"    {mark}\n" for mark in MARKS)
    )
    return tmp_path


def small(
    name: str, *wanted: str, limit: float = 300.0, test_limit: float = 300.0, processes: int = 0
) -> parts.Part:
    """A part with the small tests that are well, and those that are wanted beside them."""
    unwanted = [f"not {mark}" for mark in MARKS if mark not in wanted]
    options = ("-n", str(processes), "test_small.py")
    marks = " and ".join(unwanted)
    return parts.Part(name=name, marks=marks, options=options, limit=limit, test_limit=test_limit)


def run(*chosen: parts.Part) -> tuple[parts.Account, str]:
    account = parts.Account()
    parts.run_all(chosen, account, ours=False)
    return account, "\n".join(account.lines())


def names(tests: object) -> list[str]:
    assert isinstance(tests, dict)
    return [test.rpartition("::")[2] for test in tests]


@pytest.mark.parametrize("processes", [0, 2])
def test_what_is_well_passes(processes: int, capfd: pytest.CaptureFixture[str]) -> None:
    account, told = run(small("local", processes=processes))
    assert account.has_passed
    assert account.parts["local"].outcome.passed == 1
    assert "second try: 0" in told
    skips = [line for line in capfd.readouterr().out.splitlines() if line.startswith("skipped ")]
    assert skips == ["skipped 1: needs Python 3.8", "skipped 6: needs root"]


def test_a_test_that_always_fails_fails_it_and_the_others_still_run() -> None:
    account, told = run(small("local", "always", "once"), small("cluster"))
    assert not account.has_passed
    assert names(account.parts["local"].outcome.failures) == ["test_always"]
    assert names(account.second_tries) == ["test_once"]
    assert account.parts["cluster"].outcome.is_well
    assert "AssertionError: every time" in told
    assert told.splitlines()[-1] == "failed: local"


@pytest.mark.parametrize("processes", [0, 2])
def test_a_test_that_fails_once_passes_and_is_named(processes: int) -> None:
    account, told = run(small("local", "once", processes=processes))
    assert account.has_passed
    assert names(account.second_tries) == ["test_once"]
    assert account.parts["local"].outcome.passed == 2
    assert "AssertionError: the first time" in told
    assert told.splitlines()[-1] == "second try: 1 (test_small.py::test_once)"


def test_nine_that_fail_once_fail_it() -> None:
    account, told = run(small("local", "often"))
    assert not account.has_passed
    assert len(account.parts["local"].outcome.failures) == 9
    assert told.splitlines()[-1] == "failed: local"


def test_second_tries_of_all_parts_are_counted_together(project: Path) -> None:
    (project / "flag-8").touch()
    account, _ = run(small("local", "often"), small("cluster", "once"))
    assert len(account.second_tries) == 8
    assert not account.has_passed
    assert names(account.parts["cluster"].outcome.failures) == ["test_once"]


def test_a_part_that_dies_by_a_signal_fails_it_and_the_others_still_run() -> None:
    account, told = run(small("local", "dies", "once"), small("cluster"))
    assert not account.has_passed
    assert account.second_tries == {}
    assert account.parts["cluster"].outcome.is_well
    assert "--- FAILED: local: ended by SIGKILL" in told


def test_a_process_of_a_part_that_dies_is_a_failure_of_its_test() -> None:
    account, _ = run(small("local", "dies", processes=2))
    assert not account.has_passed


def test_a_part_that_hangs_is_ended_and_shows_its_stacks() -> None:
    account, told = run(small("local", "hangs", limit=10.0), small("cluster"))
    assert not account.has_passed
    assert "local: not over after 10 s" in told
    assert "in test_hangs" in told
    assert account.parts["cluster"].outcome.is_well


@pytest.mark.parametrize("processes", [0, 2])
def test_a_test_that_hangs_fails_alone_at_its_limit_and_shows_where(processes: int) -> None:
    account, told = run(small("local", "hangs", "once", test_limit=2.0, processes=processes))
    assert names(account.parts["local"].outcome.failures) == ["test_hangs"]
    assert names(account.second_tries) == ["test_once"]
    assert "Timeout (>2.0s)" in told
    assert "def test_hangs" in told


@pytest.mark.parametrize("broken", ["import does_not_exist", "", "def test_nothing_at_all(:"])
def test_tests_that_cannot_be_collected_fail_it(project: Path, broken: str) -> None:
    (project / "test_small.py").write_text(broken)
    account, told = run(small("local"))
    assert not account.has_passed
    assert "--- FAILED: local: exit code " in told


def test_a_command_that_fails_fails_it_and_is_not_repeated(project: Path) -> None:
    program = "import pathlib, sys; pathlib.Path('called').open('a').write('x'); sys.exit(1)"
    account, told = run(parts.Part(name="checks", command=(sys.executable, "-c", program)))
    assert not account.has_passed
    assert (project / "called").read_text() == "x"
    assert "--- FAILED: checks: exit code 1" in told


def test_a_cluster_that_is_unwell_is_restarted_and_its_part_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster is a stand-in here: what a real one looks like when it is unwell is tested elsewhere."""
    troubles = ["node-a not Ready"]
    monkeypatch.setattr(cluster, "trouble", lambda: troubles.pop() if troubles else "")
    monkeypatch.setattr(cluster, "restart", lambda: None)
    monkeypatch.setattr(parts.Part, "places", lambda _self: [])
    some = parts.Part(name="cluster", marks="once", options=("test_small.py",), needs_cluster=True)
    told = parts.run_part(some, left=8, ours=True)
    assert told.outcome.is_well
    assert told.second_tries == {"the cluster in cluster": "node-a not Ready"}


def test_a_pass_is_noted_with_its_commit(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOREIGN, "/some/kubeconfig")  # so that no cluster is started
    monkeypatch.setattr(sys, "argv", ["parts"])
    monkeypatch.setattr(parts, "describe_commit", lambda: {"commit": "abc", "clean": True})
    monkeypatch.setitem(parts.CHOICES, "gate", (small("local", "once", "always"),))
    assert parts.main() == 1
    assert not parts.GATE_FILE.exists()
    (project / "flag").unlink()
    monkeypatch.setitem(parts.CHOICES, "gate", (small("local", "once"),))
    assert parts.main() == 0
    noted = json.loads(parts.GATE_FILE.read_text())
    assert isinstance(noted["seconds"].pop("local"), int)
    assert noted == {
        "commit": "abc",
        "clean": True,
        "seconds": {},
        "tests": 2,
        "second_tries": ["test_small.py::test_once"],
    }


def test_without_a_browser_its_part_is_left_out_and_in_ci_the_gate_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FOREIGN, "/some/kubeconfig")  # so that no cluster is started
    monkeypatch.setattr(sys, "argv", ["parts"])
    monkeypatch.setattr(chromium, "missing", lambda: "needs Chromium")
    monkeypatch.setitem(parts.CHOICES, "gate", (parts.BROWSER, small("local")))
    monkeypatch.setenv("CI", "")
    assert parts.main() == 0
    assert "the tests in a browser are skipped: needs Chromium" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert parts.main() == 1
    assert all(any(each.name == parts.BROWSER.name for each in every) for every in (parts.GATE, parts.ALL))


def test_the_commit_that_is_tested(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    author = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], check=True)
    found = parts.describe_commit()
    assert len(str(found["commit"])) == 40
    assert found["clean"] is True
    (project / "test_small.py").write_text("")
    assert parts.describe_commit() == found | {"clean": False}


def test_parts_of_the_cluster_collect_no_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(parts.__file__).parents[1])
    found = {each.name: each.places() for each in parts.ALL}
    assert found["local"] == []
    assert found["cluster"] == found["alone"] == found["restarts"]
    assert "tests/faults/kubernetes/test_pods.py" in found["cluster"]
    assert "tests/model/test_job.py" not in found["cluster"]
