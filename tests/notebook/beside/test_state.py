"""The state of a process between steps: handed on if it has changed, put back when its module is imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.notebook.books import Cells
from tests.notebook.generated.comparing import Comparer, comparer

from echelon.notebook.beside.sources import find_sources

LAZY = """
import sys, types
if "lazy_parts" not in sys.modules:
    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            import json
            sys.modules["lazy_parts"].part = json
            return getattr(json, name)

    whole = types.ModuleType("lazy_parts")
    whole.part = Lazy("part")
    sys.modules["lazy_parts"] = whole
"""


@pytest.fixture(scope="module")
def both():  # type: ignore[no-untyped-def]
    with comparer() as servers:
        yield servers


def piped(both: Comparer, tmp_path: Path, cells: Cells) -> list[str]:
    outcome = both.compare(tmp_path, cells)
    return outcome.piped.splitlines()


def test_state_comes_from_the_last_step_that_changed_it_and_branches_that_differ_are_named() -> None:
    before = {"a": frozenset[str](), "l": {"a"}, "r": {"a"}, "c": {"a", "l", "r"}}
    there: dict[str, dict[str, dict[str, str | None]]] = {
        "a": {"@x": {"entry": "g1", "digest": "1"}, "@y": {"entry": "g1", "digest": "1"}},
        "l": {"@x": {"entry": "g1", "digest": "2"}},
        "r": {"@x": {"entry": None, "digest": "deleted"}, "v": {"entry": "v", "digest": "3"}},
    }
    entries, digests = find_sources("c", ["v"], [], before, there)
    assert entries["@y"] == {"step": "a", "entry": "g1"}
    assert entries["@x"] == {"step": "r", "entry": None, "unordered": ["l", "r"]}
    assert digests == {"v": "3", "@y": "1", "@x": "deleted"}


def test_what_belongs_to_a_library_waits_until_it_is_imported(both: Comparer, tmp_path: Path) -> None:
    """And is no reason to import it: a step that does not use the library must not wait for it."""
    cells = [
        ("step:a", "import decimal\ndecimal.getcontext().prec = 5\nimport colorsys\ncolorsys.own = 1"),
        ("step:b prev:a", "import sys\nnote('decimal' in sys.modules, 'colorsys' in sys.modules)"),
        ("step:c prev:b", "import decimal, colorsys\nnote(decimal.getcontext().prec, colorsys.own)"),
    ]
    assert piped(both, tmp_path, cells) == ["False False", "5 1"]


def test_numbers_that_nobody_has_seeded_are_not_handed_on(both: Comparer, tmp_path: Path) -> None:
    """They differ in every run: a step that depends on them would never come from the cache."""
    cells = [
        ("step:a", "import random\nrandom.random()"),
        ("step:b prev:a", "import random\nrandom.random()"),
    ]
    piped(both, tmp_path, cells)
    assert (tmp_path / "run-1" / "values" / "a" / "published.json").exists()
    assert "@random" not in (tmp_path / "run-1" / "values" / "a" / "published.json").read_text()


def test_what_the_launch_gives_each_worker_is_not_handed_on(both: Comparer, tmp_path: Path) -> None:
    cells = [
        ("step:a", "import os\nos.environ.update(RANK='7', MASTER_PORT='1', OWN='2')"),
        (
            "step:b prev:a",
            "import os\nnote([os.environ.get(name) for name in ('RANK', 'MASTER_PORT', 'OWN')])",
        ),
    ]
    assert piped(both, tmp_path, cells) == ["[None, None, '2']"]


def test_a_folder_that_is_gone_is_told(both: Comparer, tmp_path: Path) -> None:
    cells = [
        ("step:a", "import os\nos.mkdir('in')\nos.chdir('in')"),
        ("step:b prev:a", "os.rmdir('../in')"),
        ("step:c prev:b", "note(1)"),
    ]
    outcome = both.compare(tmp_path, cells)
    assert [word for word in outcome.words if "cell 4: folder is not as the step before has left it" in word]


def test_an_attribute_that_cannot_be_written_is_told_with_its_cell(both: Comparer, tmp_path: Path) -> None:
    cells = [
        ("step:a", "import json, threading\njson.lock = threading.Lock()"),
        ("step:b prev:a", "note(hasattr(json, 'lock'))"),
    ]
    outcome = both.compare(tmp_path, cells)
    assert outcome.words == (
        "echelon: cell 2: json:lock, a lock, cannot be handed on: steps after this one have it as it was",
    )


def test_a_part_of_a_library_that_loads_itself_later_is_not_deleted(both: Comparer, tmp_path: Path) -> None:
    """As `tensorflow.keras`: first it is something else, and then a module."""
    cells = [
        ("imports", LAZY),
        ("step:a", "import lazy_parts\nnote(lazy_parts.part.dumps(1))\nlazy_parts.part.indent = 5"),
        ("step:b prev:a", "import lazy_parts\nnote(lazy_parts.part.dumps(2), lazy_parts.part.indent)"),
    ]
    assert piped(both, tmp_path, cells) == ["'1'", "'2' 5"]
