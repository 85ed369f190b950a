"""Which modules the ranks' Python has, asked without running the user's program for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE

SHELL = '#!/bin/sh\necho "$@" >> {calls}\n'
PYTHON = f"#!{sys.executable}\nimport sys\nprint(*sys.argv[1:], file=open('{{calls}}', 'a'))\n"


# BUG: a command that is no Python was itself started with `-c` and the question.
@pytest.mark.parametrize("text", [SHELL, PYTHON], ids=["sh", "python"])
def test_a_program_is_not_started_to_be_asked(
    agents: Agents, write_script: Callable[[str], str], text: str
) -> None:
    calls = agents.folder / "calls"
    program = Path(write_script(text.format(calls=calls)))
    program.chmod(0o755)
    agents.describe(str(program), "train")
    agents.task["groups"][0]["launch"]["if_importable"] = {"json": {"HAS_JSON": "1"}}
    agents.describe_again()
    assert agents.start(0).wait(PATIENCE) == 0
    assert calls.read_text() == "train\n"
