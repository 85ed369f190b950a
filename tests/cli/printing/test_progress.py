"""Progress bars of several ranks: in their workers' lines at the bottom of a terminal, a line now and then
elsewhere."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.terminal import Terminal

from echelon.cli.following.bottom import BottomLines, cut, fit
from echelon.cli.following.lines import LinePrinter
from echelon.model.output.log import LogLine

Call = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[..., Terminal]
Write = Callable[..., Path]
NESTED = """
    import pathlib, time
    from tqdm import tqdm

    often = {"mininterval": 0, "miniters": 1}  # by default a bar leaves steps out by the time they took
    for epoch in tqdm(range(3), desc="epochs", **often):
        for step in tqdm(range(20), desc="steps", leave=False, **often):
            time.sleep(0.01)
            if epoch == 1 and step == 10:
                while not pathlib.Path("go").exists():
                    time.sleep(0.02)
        tqdm.write(f"epoch {epoch}: loss 0.1")
    print("end")
"""
WIDE = """
    import pathlib, time
    from tqdm import tqdm

    bar = tqdm(range(100), desc="Epoch 3/100 training resnet50", mininterval=0, miniters=1)
    for number in bar:
        bar.set_postfix(loss=0.1234, top1=71.23, top5=90.1, lr=0.0001, grad_norm=1.23)
        while number == 50 and not pathlib.Path("go").exists():
            time.sleep(0.02)
"""


def test_nested_bars_at_the_bottom_of_a_terminal(terminal: Open, write: Write) -> None:
    write("nested.py", NESTED)
    screen = terminal("run", "-n", "2", "--name", "fm", "nested.py", columns=120)
    bar = r"running  epoch 2/3  10/20  50%  "
    said = r"^\[[01]\] epoch 0: loss 0.1$"
    screen.expect_lines("^echelon: run fm", said, said, rf"^\[0\] {bar}", rf"^\[1\] {bar}")
    Path("go").touch()
    assert screen.end() == 0
    for rank in (0, 1):
        own = [line for line in screen.lines if line.startswith(f"[{rank}] ")]
        assert own[:4] == [
            f"[{rank}] {text}" for text in (*(f"epoch {n}: loss 0.1" for n in range(3)), "end")
        ]
        assert own[4].startswith(f"[{rank}] epochs: 100%|")
        assert len(own) == 5


def test_nested_bars_in_a_pipe(cli: Call, write: Write) -> None:
    write("nested.py", NESTED)
    Path("go").touch()
    began = time.monotonic()
    done = cli("run", "-n", "2", "--name", "fm", "nested.py")
    took = time.monotonic() - began
    assert "\x1b" not in done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[{rank}] {text}"
        for rank in (0, 1)
        for text in (*(f"epoch {number}: loss 0.1" for number in range(3)), "end")
    )
    for rank in (0, 1):
        # A sight whenever five seconds have passed since the first, and the end.
        own = [line for line in done.stderr.splitlines() if line.startswith(f"[{rank}] ")]
        assert all(re.match(r"\[\d\] (epochs: +(0|33|67|100)|steps: +\d+)%\|", line) for line in own), own
        assert 1 <= len(own) <= 1 + took / 5
        assert "100%" in own[-1]


@pytest.mark.parametrize("columns", [60, 100])
def test_no_bar_is_wider_than_the_terminal(terminal: Open, write: Write, columns: int) -> None:
    write("wide.py", WIDE)
    screen = terminal("run", "-n", "2", "--name", "fm", "wide.py", columns=columns)
    screen.expect_lines(
        "^echelon: run fm", *(rf"^\[{rank}\] running  epoch 3/100  5[01]/100" for rank in (0, 1))
    )
    assert all(len(line) < columns for line in screen.lines)
    Path("go").touch()
    assert screen.end() == 0
    assert [line[:3] for line in screen.lines if line.startswith("[")] in (["[0]", "[1]"], ["[1]", "[0]"])


def line(text: str, at: float, *, rank: int = 0, progress: bool = True) -> LogLine:
    return LogLine(text=text, at=at, worker=rank, rank=rank, stream="stderr", progress=progress)


@pytest.mark.parametrize("prefix", [True, False])
def test_a_pipe_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], prefix: bool) -> None:
    printer = LinePrinter(prefix=prefix)
    for second in range(12):
        printer.show(line(f"{second}%", 100.0 + second))
    printer.show(line("", 112.0))
    printer.show(line("done", 112.0, progress=False))
    printer.finish()
    head = "[0] " if prefix else ""
    assert capsys.readouterr().err.splitlines() == [f"{head}{text}" for text in ("5%", "10%", "done")]


@pytest.mark.parametrize("prefix", [True, False])
def test_a_short_bar_in_a_pipe_is_the_line_that_it_becomes(
    capsys: pytest.CaptureFixture[str], prefix: bool
) -> None:
    printer = LinePrinter(prefix=prefix)
    for epoch in range(4):  # each takes less than five seconds, all of them more
        printer.show(line(f"epoch {epoch}: 10%", 100.0 + 2 * epoch))
        printer.show(line(f"epoch {epoch}: 90%", 101.0 + 2 * epoch))
        printer.show(line("", 102.0 + 2 * epoch))
        printer.show(line(f"epoch {epoch}: done", 102.0 + 2 * epoch, progress=False))
    printer.finish()
    head = "[0] " if prefix else ""
    assert capsys.readouterr().err.splitlines() == [f"{head}epoch {epoch}: done" for epoch in range(4)]


@pytest.mark.parametrize("text", ["loading\\rloaded", "1/2\\r2/2\\n"])
def test_a_pipe_gets_each_line_once(cli: Call, write: Write, text: str) -> None:
    write("bar.py", f'print("{text}", end="", flush=True)\nprint()\nprint("end")\n')
    last = text.split("\\r")[1].replace("\\n", "\n") + "\n"
    assert cli("run", "--name", "fm", "bar.py").stdout == f"{last}end\n"
    assert cli("logs", "fm").stdout == f"{last}end\n"


def test_lines_fit() -> None:
    made = fit([(f"\x1b[36m[{number}]\x1b[0m ", "█" * 200) for number in range(30)], 40, 20)
    assert len(made) == 10
    assert made[-1] == "... and 21 more"
    assert made[0] == "\x1b[36m[0]\x1b[0m " + "█" * 34 + "…"
    assert cut("short", 5) == "short"
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("anything", 0) == ""


def test_what_a_rank_paints_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    bottom = BottomLines()
    bottom.put((0, "stderr"), "[0] ", "\x1b[2J\x1b[31m50%\x1b[0m\x1b]0;title\x07\x1b[A\r")
    bottom.close()
    assert capsys.readouterr().err == "[0] 50%\r\x1b[J"
