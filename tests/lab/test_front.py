"""The panel's files, as the wheel installs them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from tests.lab.served import FRONT

import echelon

ROOT = Path(__file__).parents[2]


def test_the_wheel_puts_every_file_where_jupyter_looks() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    places = {ROOT / source: target for source, target in wheel["shared-data"].items()}
    assert set(places) == set(FRONT.iterdir())
    assert places[FRONT / "static"] == "share/jupyter/labextensions/echelon/static"
    assert places[FRONT / "echelon.json"] == "etc/jupyter/jupyter_server_config.d/echelon.json"


def test_what_jupyter_reads_of_them() -> None:
    package = json.loads((FRONT / "package.json").read_text())
    assert package["version"] == echelon.__version__
    assert (FRONT / package["jupyterlab"]["_build"]["load"]).is_file()
    enabled = json.loads((FRONT / "echelon.json").read_text())["ServerApp"]["jpserver_extensions"]
    from echelon import lab

    assert [each["module"] for each in lab._jupyter_server_extension_points()] == list(enabled)


def test_modules_of_the_panel_import_only_each_other_and_write_no_html() -> None:
    for path in (FRONT / "static").glob("*.js"):
        text = path.read_text()
        for name in re.findall(r'^import .* from "(.*)";$', text, re.MULTILINE):
            assert (path.parent / name).is_file()
        # What a notebook or a rank says is shown as text, never read as HTML.
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), path
