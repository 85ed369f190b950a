"""A single rank in the foreground has a terminal of its own, and behaves there as under plain Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.terminal import ECHELON, Terminal
from tests.conftest import PATIENCE, wait_until

Call = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[..., Terminal]
Write = Callable[..., Path]
WAIT = """
    import pathlib, time

    def wait_for(name):
        while not pathlib.Path(name).exists():
            time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def waiting(write: Write) -> None:
    """Scripts wait for files of the test."""
    write("waiting.py", WAIT)


def is_cooked(screen: Terminal) -> bool:
    flags = screen.mode()[3]
    return bool(flags & termios.ICANON and flags & termios.ECHO and flags & termios.ISIG)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T"


def test_all_three_streams_are_a_terminal_of_the_same_size(terminal: Open, write: Write) -> None:
    write(
        "look.py",
        """
        import os, signal, sys
        print([os.isatty(each) for each in (0, 1, 2)], "in front:", os.tcgetpgrp(0) == os.getpgrp())
        print("first", *os.get_terminal_size(), os.environ["TERM"], os.environ.get("COLUMNS"))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
        print("ready")
        signal.sigwait({signal.SIGWINCH})
        print("then", *os.get_terminal_size())
        """,
    )
    screen = terminal("run", "--name", "fm", "look.py", columns=101)
    screen.expect("ready")
    assert "[True, True, True] in front: True" in screen.shown
    assert "first 101 24 xterm None" in screen.shown
    screen.resize(30, 90)
    screen.expect("then 90 30")
    assert screen.end() == 0
    assert is_cooked(screen)


def test_nobody_gets_a_terminal_where_none_is(cli: Call, write: Write) -> None:
    write("look.py", "import os; print([os.isatty(each) for each in (0, 1, 2)])")
    assert cli("run", "--name", "fm", "look.py").stdout == "[False, False, False]\n"


def test_control_c_is_a_key(terminal: Open, cli: Call, write: Write) -> None:
    write(
        "save.py",
        """
        import time
        try:
            print("ready")
            time.sleep(600)
        except KeyboardInterrupt:
            print("saved")
        """,
    )
    screen = terminal("run", "--name", "fm", "save.py")
    screen.expect("ready")
    screen.type("\x03")
    assert screen.end() == 0
    assert "saved" in screen.shown
    assert "succeeded" in cli("status", "fm").stdout


def test_what_control_c_ends_is_stopped_and_not_started_again(
    terminal: Open, cli: Call, write: Write
) -> None:
    write("sleep.py", "import time; print('ready'); time.sleep(600)")
    screen = terminal("run", "--restarts", "3", "--name", "fm", "sleep.py")
    screen.expect("ready")
    screen.type("\x03")
    assert screen.end() == 130
    assert screen.shown.count("ready\n") == 1
    assert "KeyboardInterrupt" in screen.shown
    assert json.loads(cli("status", "fm", "-o", "json").stdout)["state"] == "stopped"
    assert is_cooked(screen)


def test_control_c_before_the_rank_is_there_stops_the_run(terminal: Open, gpus: object, cli: Call) -> None:
    gpus.show(1)  # type: ignore[attr-defined]
    held = terminal("run", "--gpus", "1", "--name", "held", "--", "sleep", "600")
    wait_until(lambda: "running" in cli("status", "held").stdout, "the first run")
    screen = terminal("run", "--gpus", "1", "--name", "queued", "--", "sleep", "600")
    screen.expect("queued|waits|busy|free")
    screen.type("\x03")
    assert screen.end() == 130
    held.type("\x03")
    assert held.end() == 130


def test_a_program_that_reads_keys_gets_them_all(terminal: Open, write: Write) -> None:
    write(
        "keys.py",
        """
        import os, sys, tty
        tty.setraw(0)
        sys.stdout.write("ready\\r\\n")
        sys.stdout.flush()
        got = b""
        while not got.endswith(b"q"):
            got += os.read(0, 100)
        sys.stdout.write(repr(got) + "\\r\\n")
        """,
    )
    screen = terminal("run", "--name", "fm", "keys.py")
    screen.expect("ready")
    screen.type("a\x03\x1a\x04\x1b[Aq")
    screen.expect(r"b'a\\x03\\x1a\\x04\\x1b\[Aq'")
    assert screen.end() == 0


def test_control_z_and_fg(terminal: Open, write: Write, home: Path) -> None:
    write(
        "count.py",
        """
        import itertools, pathlib, time
        for number in itertools.count():
            pathlib.Path("count").write_text(str(number))
            print("ready") if number == 0 else None
            if pathlib.Path("go").exists():
                break
            time.sleep(0.02)
        print("the end")
        """,
    )
    screen = terminal("--norc", "-i", program=("bash",), environment={"PS1": "shell$ ", "NO_COLOR": "1"})
    screen.expect(r"shell\$ ")
    screen.type(f"{' '.join(ECHELON)} run --name fm count.py\n")
    screen.expect("ready")
    screen.type("\x1a")
    screen.expect("Stopped")
    stopped_at = Path("count").read_text()
    screen.type("echo it is $((1 + 1))\n")
    screen.expect("it is 2")  # bash sets a mode of its own; what it says of ours is below
    assert Path("count").read_text() == stopped_at
    screen.type("fg\n")
    wait_until(lambda: Path("count").read_text() not in ("", stopped_at), "the rank to go on")
    Path("go").touch()
    screen.expect(r"the end\n(?s:.*)succeeded(?s:.*)shell\$ ")
    screen.type("echo then $?; exit\n")
    screen.expect("then 0")
    screen.end()


def test_the_rank_goes_on_when_its_stopped_command_is_killed(terminal: Open, cli: Call, write: Write) -> None:
    write("stay.py", "from waiting import wait_for\nprint('ready')\nwait_for('go')\n")
    screen = terminal("--norc", "-i", program=("bash",), environment={"PS1": "shell$ "})
    screen.type(f"{' '.join(ECHELON)} run --name fm stay.py\n")
    screen.expect(r"ready\n")
    screen.type("\x1a")
    screen.expect("Stopped")
    screen.type("kill -9 %1; exit\n")
    Path("go").touch()
    assert cli("wait", "fm").returncode == 0


def test_a_rank_that_control_z_stopped_can_save_when_the_run_is_stopped(
    terminal: Open, cli: Call, stay: str
) -> None:
    screen = terminal("--norc", "-i", program=("bash",), environment={"PS1": "shell$ "})
    screen.type(f"{' '.join(ECHELON)} run --name fm {stay}\n")
    screen.expect(r"ready 0\n")
    screen.type("\x1a")
    screen.expect("Stopped")
    assert cli("stop", "fm").returncode == 0
    assert "heard SIGTERM" in Path("runs/fm/logs/rank-0.log").read_text()
    screen.type("kill -9 %1; exit\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_the_mode_is_set_back_when_the_command_is_told_to_end(
    terminal: Open, cli: Call, write: Write, number: int
) -> None:
    write("stay.py", "from waiting import wait_for\nprint('ready')\nwait_for('go')\n")
    screen = terminal("run", "--name", "fm", "stay.py")
    screen.expect("ready")
    wait_until(lambda: not is_cooked(screen), "raw mode")
    screen.process.send_signal(number)
    screen.end()
    assert screen.mode() == screen.first_mode
    if number != signal.SIGTERM:  # which stops the run
        wait_until(lambda: "running" in cli("status", "fm").stdout, "the run to be seen running")


def test_a_stop_by_another_process_sets_the_mode_back_meanwhile(terminal: Open, write: Write) -> None:
    write("stay.py", "from waiting import wait_for\nprint('ready')\nwait_for('go')\n")
    screen = terminal("run", "--name", "fm", "stay.py")
    screen.expect("ready")
    wait_until(lambda: not is_cooked(screen), "raw mode")
    screen.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: is_cooked(screen), "the mode of before")
    wait_until(lambda: is_stopped(screen.process.pid), "it to stop")  # it sets the mode first
    screen.process.send_signal(signal.SIGCONT)
    wait_until(lambda: not is_cooked(screen), "raw mode again")
    Path("go").touch()
    assert screen.end() == 0


def test_the_run_survives_its_terminal_and_reads_an_end(terminal: Open, cli: Call, write: Write) -> None:
    write(
        "ask.py",
        """
        from waiting import wait_for
        print("ready")
        wait_for("go")
        try:
            input("who is there? ")
        except EOFError:
            print("nobody")
        """,
    )
    screen = terminal("run", "--name", "fm", "ask.py")
    screen.expect("ready")
    screen.close()
    wait_until(lambda: "running" in cli("status", "fm").stdout, "the run to be seen running")
    Path("go").touch()
    assert cli("wait", "fm").returncode == 0
    assert "nobody" in Path("runs/fm/logs/rank-0.log").read_text()


def test_the_log_has_both_streams_and_no_line_ends_of_a_terminal(terminal: Open, write: Write) -> None:
    write(
        "both.py",
        """
        import sys
        for number in range(3000):
            print("out", number)
            print("err", number, file=sys.stderr)
        raise ValueError("the end")
        """,
    )
    screen = terminal("run", "--name", "fm", "both.py", environment={"FORCE_COLOR": "1"})
    assert screen.end() == 1
    log = Path("runs/fm/logs/rank-0.log").read_bytes().decode()
    assert "\r" not in log
    expected = "".join(f"out {number}\nerr {number}\n" for number in range(3000))
    assert log.startswith(expected)
    assert expected in screen.shown
    assert "exited with code 1: ValueError: the end" in screen.shown


def test_an_agent_that_replaces_another_goes_on_with_the_terminal(terminal: Open, write: Write) -> None:
    write(
        "again.py",
        """
        import os, signal
        if os.environ["ECHELON_RESTART"] == "0":
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        name = input("name? ")
        print(os.get_terminal_size().columns, name)
        """,
    )
    screen = terminal("run", "--restarts", "1", "--name", "fm", "again.py", columns=91)
    screen.expect("name[?] ")
    screen.type("me\n")
    screen.expect("91 me")
    assert screen.end() == 0


def test_nested_bars_and_colours_look_as_under_python(terminal: Open, write: Write) -> None:
    write(
        "bars.py",
        """
        from rich.console import Console
        from tqdm import tqdm
        for epoch in tqdm(range(2), desc="epochs", bar_format="{desc} {n_fmt}/{total_fmt}"):
            for _ in tqdm(range(20), desc="steps", leave=False):
                pass
            tqdm.write(f"epoch {epoch} is done")
        Console().print("[bold red]red[/]", Console().width)
        """,
    )
    shown = []
    for words in ((*ECHELON, "run", "--name", "fm"), ("python",)):
        screen = terminal("bars.py", program=words, environment={"NO_COLOR": ""})
        assert screen.end() == 0
        shown.append([line for line in screen.lines if not line.startswith("echelon: ")])
        assert "\x1b[1;31mred\x1b[0m" in screen.shown
    assert shown[0] == shown[1] == ["epoch 0 is done", "epoch 1 is done", "epochs 2/2", "red 80"]


def test_without_the_other_streams_there_is_no_terminal(home: Path, write: Write) -> None:
    """`| tee` or `< file` mean what they mean under plain Python: the rank reads the file."""
    write("read.py", "import os, sys; print(os.isatty(1), sys.stdin.read())")
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [*ECHELON, "run", "--name", "fm", "read.py"],
            input=b"typed",
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=PATIENCE,
            check=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == b"False typed\n"


def test_a_terminal_that_goes_in_the_middle_of_a_line(terminal: Open, cli: Call, write: Write) -> None:
    write(
        "half.py",
        """
        from waiting import wait_for
        print("half a line", end="", flush=True)
        wait_for("go")
        print(" and the rest")
        """,
    )
    screen = terminal("run", "--name", "fm", "half.py")
    screen.expect("half a line")
    screen.close()
    assert screen.process.returncode == -signal.SIGHUP
    Path("go").touch()
    assert cli("wait", "fm").returncode == 0
    assert Path("runs/fm/logs/rank-0.log").read_text() == "half a line and the rest\n"
