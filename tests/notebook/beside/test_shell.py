"""What a cell's commands see of its variables."""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from echelon.notebook.analysis.magics import plain_code
from echelon.notebook.beside import shell


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[None]:
    before = set(vars(builtins))
    shell.install(tmp_path / "pip.lock")
    yield
    for name in set(vars(builtins)) - before:
        delattr(builtins, name)


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("echo {name} $name", "Ann Ann"),
        ("echo $name/x \"$name\" '$name'", "Ann/x Ann $name"),
        ("FREE=1; echo $FREE $$name_of", ""),
        ("echo {paths.data} {table['k']} {number + 1} {str(number)}", "/data v 4 3"),
        ("echo $number.csv", ".csv"),
        ("echo {unknown.part} $unknown {a,b}", "{unknown.part} {a,b}"),
        ("echo a b | awk '{print $2}'", "b"),
        ("echo {mark}", "{name} $name"),
    ],
)
@pytest.mark.usefixtures("commands")
def test_commands_get_the_values_of_the_notebooks_variables(command: str, written: str) -> None:
    names = {
        "name": "Ann",
        "number": 3,
        "paths": types.SimpleNamespace(data="/data"),
        "table": {"k": "v"},
        "mark": "'{name} $name'",
    }
    exec(plain_code(f"found = !{command}", "cell 1"), names)
    found = names["found"]
    assert isinstance(found, list)
    assert found[0].startswith("1 ") if not written else found == [written]


@pytest.mark.usefixtures("commands")
def test_a_command_in_a_function_sees_its_variables() -> None:
    names: dict[str, object] = {}
    exec(
        plain_code(
            "def f(where):\n    found = !echo $where {where.upper()}\n    return found\nx = f('a')", "cell"
        ),
        names,
    )
    assert names["x"] == ["a A"]


@pytest.mark.usefixtures("commands")
def test_a_folder_may_be_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    exec(plain_code("%cd $folder", "cell 1"), {"folder": "inner"})
    assert Path.cwd() == tmp_path / "inner"
