"""The settings reference is what the code says today, and says all of it."""

from __future__ import annotations

import dataclasses

from docs.generate.settings import PAGE, page

from echelon.cli.commands.run import run
from echelon.model.former import HIDDEN
from echelon.model.settings import Settings


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python docs/generate/settings.py"


def test_every_setting_and_every_flag_of_run_is_on_it() -> None:
    text = page()
    for field in (each for each in dataclasses.fields(Settings) if each.name not in HIDDEN):
        assert f"| `{field.name}` |" in text
    flags = {
        flag
        for param in run.params
        for flag in param.opts
        if flag.startswith("--") and not getattr(param, "hidden", False)
    }
    assert len(flags) >= 40
    assert [flag for flag in flags if flag not in text] == []
