"""What a short command loads: most of its time is imports, and one line on top of a module can double it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import store
from echelon.model import ends
from echelon.model.job import Job

_HEAVY = (
    "echelon.admission",
    "echelon.agent.ranks.processes",
    "echelon.api",
    "echelon.engines.kubernetes",
    "echelon.engines.local.capacity",
    "echelon.engines.results",
    "echelon.frameworks",
    "echelon.handle",
    "echelon.placement",
    "echelon.preparation.prepare",
    "echelon.submit",
    "rich",
    "shutil",
    "ssl",
)
_CALL = """\
import sys
from echelon.cli.main import call
code = call(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""


def loaded_by(*words: str) -> set[str]:
    """The modules that a process of the command has loaded."""
    said = subprocess.run([sys.executable, "-c", _CALL, *words], capture_output=True, text=True, check=True)
    code, *modules = said.stderr.splitlines()[-1].split()
    assert code == "0"
    return set(modules)


def test_help_loads_no_command() -> None:
    ours = {name for name in loaded_by("--help") if name.startswith("echelon.")}
    assert ours == {"echelon.cli", "echelon.cli.main"}


@pytest.mark.usefixtures("home")
def test_a_list_loads_nothing_of_what_starts_and_follows_runs() -> None:
    engine = LocalEngine()
    engine.record(Job(name="t-1", command=("true",)), None)
    store.write_final(engine.store.dir("t-1"), ends.stopped("stopped by a test", at=1.0))
    assert [run.state for run in engine.runs()] == ["stopped"]
    assert loaded_by("ps", "-a", "-o", "json").isdisjoint(_HEAVY)
    assert loaded_by("ps").isdisjoint(_HEAVY)
