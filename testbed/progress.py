"""Commands that take minutes: their progress, as one line that counts or regular lines in a log, and the time
after which a test run begins none of them any more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.errors import Unavailable

PULSE = 0.5
QUIET_PULSE = 30.0
# Seconds since 1970, set by `make test`: on a machine with an empty cache, a build that only some tests ask
# for must not take the time of all tests.
UNTIL = "ECHELON_TEST_BUILDS_UNTIL"


class TooLate(Unavailable):
    """A build may not begin any more."""


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
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        raise TooLate(
            f"the test run's time for builds was over before {what}",
            hint="what was built is kept: run it again",
        )
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
