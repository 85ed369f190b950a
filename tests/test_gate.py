"""Which tests the gate holds: a real collection of small tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import gate

TESTS = """
import pytest

@pytest.fixture
def agents():
    pass

@pytest.fixture
def through(agents):
    pass

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.soak
def test_soak(): pass

@pytest.mark.cluster
def test_cluster(): pass

@pytest.mark.cluster
@pytest.mark.core
def test_core_in_the_cluster(): pass

def test_agents(agents): pass

def test_agents_by_way_of_another(through): pass

@pytest.mark.core
def test_core_with_agents(agents): pass

@pytest.mark.parametrize("agents", [1])
def test_a_parameter_of_that_name(agents): pass
"""


@pytest.mark.parametrize("in_faults", [False, True])
def test_the_rule(tmp_path: Path, in_faults: bool) -> None:
    (tmp_path / "test_small.py").write_text(TESTS)
    place = f"from pathlib import Path\nfrom tests import gate\ngate.FAULTS = Path({str(tmp_path)!r})\n"
    plugins = "pytest_plugins = ['tests.gate']\n"
    (tmp_path / "conftest.py").write_text(plugins + (place if in_faults else ""))
    marks = ["-o", "markers=slow\nsoak\ncluster\ncore\ngate"]
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "gate", "-c", "/dev/null", *marks]
    done = subprocess.run(
        [*words, str(tmp_path)],
        env={"PYTHONPATH": str(Path(gate.__file__).parents[1]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line}
    core = {"test_core_in_the_cluster", "test_core_with_agents"}
    others = {"test_plain", "test_a_parameter_of_that_name[1]"}
    assert found == (core if in_faults else core | others), done.stdout + done.stderr
