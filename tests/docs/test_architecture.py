"""What the page about the architecture shows of the code is what the code has, and what its packages say."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from docs.generate.architecture import BANDS, PAGE, PICTURE, SOURCE, bands, floors, page, picture, table

from echelon.model.settings import Settings

MADE = "run: python -m docs.generate.architecture"
PACKAGES = sorted(init.parent for init in SOURCE.rglob("__init__.py") if init.parent != SOURCE)
NAMED = re.compile(r"`([a-z_]+)(?:\.py|/)?`")
LISTED = re.compile(r"^ *(\w+\.py) ", re.MULTILINE)


def docstring(package: Path) -> str:
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    assert said
    return said


def test_the_table_of_packages_is_what_their_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), MADE


def test_every_package_and_every_module_beside_them_is_in_the_table() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| \S", table(), re.MULTILINE)
    beside = {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")}
    assert sorted(rows) == sorted({f"{each.relative_to(SOURCE)}/" for each in PACKAGES} | beside)


def test_the_picture_has_the_floors_of_the_import_contract() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), MADE
    shown = {text.text for text in ET.fromstring(picture()).iter("{http://www.w3.org/2000/svg}text")}
    assert {each for floor in floors() for each in floor} - {"engines"} <= shown
    assert [len(rows) > 0 for rows in bands()] == [True] * len(BANDS)
    assert [floor for rows in bands() for floor in rows] == floors()


def test_modules_that_docstrings_of_packages_name_are_there() -> None:
    """A name may be of another package, as `ledger.py`; `eval` and a setting are none."""
    folders = {path.name for path in SOURCE.rglob("*") if path.is_dir()}
    there = {path.stem for path in SOURCE.rglob("*.py")} | folders | set(dir(builtins))
    there |= {each.name for each in fields(Settings)}
    named = {str(each.relative_to(SOURCE)): set(NAMED.findall(docstring(each))) for each in PACKAGES}
    assert {package: names - there for package, names in named.items() if names - there} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_list_of_modules_in_a_docstring_has_all_of_them(package: Path) -> None:
    """A package may do without such a list."""
    named = set(LISTED.findall(docstring(package)))
    there = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    assert named in (set(), there)
