"""A dashboard under load: 200 runs, one of 64 ranks that has a million stored lines and goes on printing.

The one run is real, from its ranks to its files. The others are copies of the folder of one that really
ended, with another name in the record.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNS = 200
RANKS = 64
STORED = 1_000_000  # lines, before it goes on
RATE = 10_000  # lines a second after that, in all
LONGEST = 180  # seconds that it goes on by itself, if nobody ends it
NAME = "flood"
OVER = "over"  # a file that ends it
# Every line has its rank and number, so that one that is lost or twice is found. A metric is in each of them.
FLOOD = f"""\
import os, sys, time
rank, number = int(os.environ["ECHELON_RANK"]), 0
def write(many):
    global number
    lines = [f"step={{each}} loss={{1 / (each + 1):.6f}} rank {{rank}} line {{each}} of many that it prints"
             for each in range(number, number + many)]
    print("\\n".join(lines), flush=True)
    number += many
if rank == 0:
    print("the needle in the haystack", flush=True)
while number < {STORED // RANKS}:
    write(min(500, {STORED // RANKS} - number))
began, paced = time.monotonic(), 0
while not os.path.exists("{OVER}") and paced < {LONGEST * RATE // RANKS}:
    due = int((time.monotonic() - began) * {RATE // RANKS})
    if due > paced:
        write(due - paced)
        paced = due
    time.sleep(0.25)
print(f"rank {{rank}} wrote {{number}}", flush=True)
"""


def copy_runs(home: Path, name: str, copies: int) -> None:
    """Make copies of a run that has ended, each a second older than the last."""
    folder = home / "runs" / name
    record = json.loads((folder / "record.json").read_text())
    for number in range(copies):
        copy = folder.with_name(f"{name}-{number}")
        shutil.copytree(folder, copy)
        own = {"name": copy.name}
        made = record | {"ref": record["ref"] | own, "job": record["job"] | own}
        made["created"] = record["created"] - number
        (copy / "record.json").write_text(json.dumps(made))


def start_flood(folder: Path, environment: Mapping[str, str], home: Path) -> None:
    """Make all runs; the one goes on."""
    echelon = [sys.executable, "-m", "echelon.cli.main", "run"]
    (folder / "small.py").write_text("print('step=1 loss=0.5')\n")
    (folder / "flood.py").write_text(FLOOD)
    for words in (["--name", "small", "small.py"], ["-d", "--procs", str(RANKS), "--name", NAME, "flood.py"]):
        subprocess.run([*echelon, *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    copy_runs(home, "small", RUNS - 2)


def start_dashboard(folder: Path, environment: Mapping[str, str]) -> tuple[subprocess.Popen[str], str]:
    """`echelon ui` in a folder, and its address."""
    made = subprocess.Popen(
        [sys.executable, "-m", "echelon.cli.main", "ui", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    assert made.stdout is not None
    with made.stdout:
        return made, made.stdout.readline().strip()


def start_visitor(chromium: str, address: str, rounds: int, said: Path) -> subprocess.Popen[str]:
    """Start the visit (`visiting.py`) in a process of its own, since Playwright keeps a loop running; what it
    says comes to a file.
    """
    with said.open("w") as out:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("visiting.py")), chromium, address, str(rounds)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


def tell(visitor: subprocess.Popen[str], line: str) -> None:
    """Say something to a visitor that may be gone: its own words say why."""
    assert visitor.stdin is not None
    with suppress(BrokenPipeError):
        visitor.stdin.write(f"{line}\n")
        visitor.stdin.flush()


def end(*processes: subprocess.Popen[str]) -> None:
    """End processes, however they are."""
    for each in processes:
        each.kill()
        each.wait()
        if each.stdin is not None:
            with suppress(BrokenPipeError):
                each.stdin.close()


def anonymous_memory_of(pid: int) -> float:
    """MB (10^6 bytes) that a process holds, without the files that it maps."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"process {pid} has no memory of its own")
