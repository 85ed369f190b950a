"""What a person sees who sits at a terminal, and what they can type."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import wait_for
from tests.cli.terminal import Terminal
from tests.conftest import wait_until

Call = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[..., Terminal]
Write = Callable[..., Path]
ESCAPE = "\x1b["


@pytest.mark.core
def test_ranks_are_coloured(terminal: Open, hello: str) -> None:
    screen = terminal("run", "-n", "2", "--name", "fm", hello)
    assert screen.end() == 0
    assert "\x1b[36m[0]\x1b[0m hello from 0" in screen.shown
    assert "\x1b[32m[1]\x1b[0m hello from 1" in screen.shown
    assert "\x1b[32msucceeded\x1b[0m" in screen.shown


@pytest.mark.slow
def test_no_colour_where_none_is_wanted(terminal: Open, hello: str, write: Write) -> None:
    write("fail.py", "raise SystemExit(3)")
    for words, environment in (
        (["run", "-n", "2", "--name", "fm", hello], {"NO_COLOR": "1"}),
        (["run", "-n", "2", "--name", "bad", "fail.py"], {"TERM": "dumb"}),
        (["ps", "-a"], {"NO_COLOR": "1"}),
        (["status", "bad"], {"NO_COLOR": "1"}),
        (["status", "bad"], {"TERM": "dumb"}),
        (["wait", "fm"], {"NO_COLOR": "1"}),
        (["doctor"], {"NO_COLOR": "1"}),
        (["top", "--once"], {"NO_COLOR": "1"}),
    ):
        screen = terminal(*words, environment=environment)
        screen.end()
        assert screen.shown
        assert not re.search("\x1b\\[[0-9;]*m", screen.shown), words
        assert ESCAPE not in screen.shown or "TERM" not in environment, words


def test_nothing_of_a_terminal_in_a_pipe(call: Call, hello: str, write: Write) -> None:
    write("fail.py", "raise SystemExit(3)")
    for words in (
        ["run", "-n", "2", "--name", "fm", hello],
        ["run", "--name", "bad", "fail.py"],
        ["ps", "-a"],
        ["status", "bad"],
        ["doctor"],
        ["top"],
    ):
        done = call(*words)
        assert ESCAPE not in done.stdout + done.stderr


@pytest.mark.core
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_run_is_one_line_of_the_table(terminal: Open, call: Call, write: Write, columns: int) -> None:
    write("fail.py", "raise ValueError('a very long explanation of what went wrong, ' * 4)")
    assert call("run", "--name", "bad", "fail.py", "--one-flag", "with-a-long-value" * 3).returncode == 1
    screen = terminal("ps", "-a", columns=columns, environment={"NO_COLOR": "1"})
    assert screen.end() == 0
    head, row = screen.shown.rstrip().split("\n")
    assert re.match(r"NAME +STATE", head)
    assert re.match(r"bad +failed +1 ", row)
    assert len(row) <= columns
    assert ("fail.py --one-flag" in row) == (columns == 200)


@pytest.mark.core
def test_a_debugger_and_a_question(terminal: Open, write: Write) -> None:
    write(
        "debug.py",
        """
        answer = 41
        breakpoint()
        name = input("who are you? ")
        print("hello,", name)
        """,
    )
    screen = terminal("run", "--name", "fm", "debug.py")
    screen.expect(r"\(Pdb\) ")
    screen.type("p answer + 1\n")
    screen.expect(r"(?s)42.*\(Pdb\) ")
    screen.type("continue\n")
    screen.expect(r"who are you\? ")
    screen.type("a person\n")
    screen.expect("hello, a person")
    assert screen.end() == 0


@pytest.mark.core
def test_control_c_once_and_twice(terminal: Open, stay: str) -> None:
    screen = terminal("run", "-n", "2", "--name", "one", stay)
    wait_for("runs/one/pid-0", "runs/one/pid-1")
    screen.expect("2 workers")  # its headline: it handles signals from then on
    screen.type("\x03")
    assert screen.end() == 130
    assert "stopping: the ranks get SIGINT; once more sends SIGTERM" in screen.shown
    screen = terminal("run", "-n", "2", "--name", "two", stay, "--stubborn")
    wait_for("runs/two/pid-0", "runs/two/pid-1")
    screen.expect("2 workers")
    screen.type("\x03")
    wait_for("runs/two/term-0", "runs/two/term-1")
    screen.type("\x03")
    assert screen.end() == 130
    assert "killing" in screen.shown


def test_the_run_survives_its_terminal(terminal: Open, cli: Call, stay: str) -> None:
    screen = terminal("run", "-n", "2", "--name", "fm", stay)
    wait_for("runs/fm/pid-0", "runs/fm/pid-1")
    screen.close()
    wait_until(lambda: "running" in cli("status", "fm").stdout, "the run to be seen running")
    Path("go").touch()
    assert cli("wait", "fm").returncode == 0


def test_several_ranks_leave_the_terminal_alone(terminal: Open, cli: Call, stay: str) -> None:
    """When its command is killed, nothing of such a run keeps the terminal busy."""
    screen = terminal("run", "-n", "2", "--name", "fm", stay)
    wait_for("runs/fm/pid-0", "runs/fm/pid-1")
    screen.process.kill()
    screen.end()  # comes back once nobody has the terminal open any more
    wait_until(lambda: "running" in cli("status", "fm").stdout, "the run to be seen running")


def test_a_progress_bar_is_painted_over(terminal: Open, write: Write) -> None:
    write(
        "bar.py",
        """
        import sys
        for percent in (0, 50, 100):
            sys.stderr.write(f"\\r{percent}%")
            sys.stderr.flush()
        sys.stderr.write("\\n")
        print("end")
        """,
    )
    screen = terminal("run", "--name", "fm", "bar.py", environment={"NO_COLOR": "1"})
    assert screen.end() == 0
    assert screen.lines[1:3] == ["100%", "end"]
    assert len(screen.lines) == 4  # with the headline and the ending


@pytest.mark.parametrize("words", [["top"], ["ps", "--watch"]])
def test_live_views_until_control_c(terminal: Open, words: list[str]) -> None:
    screen = terminal(*words)
    screen.expect(r"(?s)\x1b\[\?1049h.*\x1b\[H.*\x1b\[H")
    screen.type("\x03")
    assert screen.end() == 130
    assert "\x1b[?1049l" in screen.shown  # the user's own screen is back
    assert "Traceback" not in screen.shown


def test_usage_error_on_a_terminal(terminal: Open) -> None:
    screen = terminal("run", "--force", "--gpus", "99999", "--", "true")
    assert screen.end() == 113
    assert "hint: " in screen.shown
