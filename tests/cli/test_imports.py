"""What a short command loads: most of its time is imports, and one line on top of a module can double it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import store
from echelon.errors import Unreachable
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
_NOBODY_LISTENS = """\
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: me, user: {token: abc}}]
"""
_CALL = """\
import sys
from echelon.cli.main import call
code = call(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""


def loaded_by(*words: str, exits: int = 0) -> set[str]:
    """The modules that a process of the command has loaded, which ends with that code."""
    said = subprocess.run([sys.executable, "-c", _CALL, *words], capture_output=True, text=True, check=True)
    code, *modules = said.stderr.splitlines()[-1].split()
    assert int(code) == exits
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


def test_a_list_of_a_cluster_loads_nothing_of_what_submits_and_explains_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / "kubeconfig"
    config.parent.mkdir(exist_ok=True)
    config.write_text(_NOBODY_LISTENS)
    monkeypatch.setenv("KUBECONFIG", str(config))
    found = loaded_by("ps", "--on", "k8s", exits=Unreachable.exit_code)
    assert "echelon.engines.kubernetes.follow.listing" in found
    assert found.isdisjoint({name for name in _HEAVY if name not in ("echelon.engines.kubernetes", "ssl")})
    there = {
        "control",
        "diagnose",
        "files",
        "nodes",
        "objects",
        "prerequisites",
        "queue",
        "taking_up",
        "upkeep",
    }
    assert found.isdisjoint({f"echelon.engines.kubernetes.{name}" for name in there})
