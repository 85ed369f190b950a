"""Progress of commands that take minutes: one line that counts, or regular lines in a log."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.errors import Unavailable

PULSE = 0.5
QUIET_PULSE = 30.0


def say(text: str) -> None:
    """One line on standard error; standard output is for the result of a command."""
    print(text, file=sys.stderr, flush=True)


def run_long(
    what: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> float:
    """Run a long command with a counting line; returns its seconds. A failure shows the log's end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began = last_said = time.monotonic()
    live = sys.stderr.isatty()
    say(f"testbed: {what} ...")
    with log.open("w") as output:
        process = subprocess.Popen(
            [*_gently(), *command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.returncode is None:
                try:
                    process.wait(PULSE)
                except subprocess.TimeoutExpired:
                    now = time.monotonic()
                    if live:
                        print(
                            f"\rtestbed: {what} ... {now - began:.0f} s ", end="", file=sys.stderr, flush=True
                        )
                    elif now - last_said > QUIET_PULSE:
                        last_said = now
                        say(f"testbed: {what} ... {now - began:.0f} s")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    seconds = time.monotonic() - began
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise Unavailable(
            f"{what} failed with exit code {process.returncode}:\n{tail}", hint=f"the whole log is {log}"
        )
    say(f"{chr(13) if live else ''}testbed: {what}: {seconds:.0f} s")
    return seconds


def _gently() -> list[str]:
    """For a command that gives way to the tests beside it: those have limits of time."""
    nice = shutil.which("nice")
    return [nice, "-n", "10"] if nice else []
