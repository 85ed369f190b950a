"""What it costs to find metrics: for the reader of a run, line by line, against reading alone; and for a
training process whose run is observed, against one that nobody looks at. And what the agent's samples of a
training process cost beside it.

Metrics are found when they are read, so a training process can only notice that another process reads. It
measures itself: the time that its own steps take, while `echelon events -f` follows it or not.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

from measure.figures import Figure, Line, Target, show
from measure.processes import processor_time_of
from measure.rounds import PATIENCE, Workspace, program, run, take_turns, workspace

ROUNDS = 5
LINES = 200_000
_PRINTED = {
    "all lines alike, three numbers each": 'print(f"step={number} loss={1 / (number + 1):.6f} accuracy=0.5")',
    "a clock before them": 'print(f"12:{number % 60:02}:00 INFO step={number} loss={1 / (number + 1):.6f}")',
    "JSON": 'print(f\'{{"step": {number}, "loss": {1 / (number + 1):.6f}}}\')',
    "text without metrics": 'print(f"loading shard {number} of the data set into memory")',
    "a metric in 100 lines": 'print(f"loss={number}" if number % 100 == 0 else "nothing but text here")',
}
_READ = """\
import sys, time
import echelon
from echelon.metrics.reader import MetricReader
run, reader = echelon.attach(sys.argv[1]), MetricReader()
began, count = time.process_time(), 0
for piece in run.raw_logs():
    if sys.argv[2] == "metrics":
        count += len(reader.read(piece))
print((time.process_time() - began) * 1e6 / int(sys.argv[3]))
"""
# A step is arithmetic that takes about 2 ms, and a line: many more lines a second than a training prints.
_TRAIN = """\
import time
began = time.process_time()
for step in range(1500):
    total = 0
    for number in range(20_000):
        total += number * number
    print(f"step={step} loss={1 / (step + 1):.6f} accuracy=0.5", flush=True)
print("took", time.process_time() - began, flush=True)
"""
# It prints nothing: all that its agent does meanwhile is to look at it.
_COMPUTE = """\
import time
ended = time.monotonic() + 30
while time.monotonic() < ended:
    sum(number * number for number in range(20_000))
"""
BEGIN, LOOK = 5.0, 15.0  # seconds after the start of a run, and for which its agent is looked at


def main() -> None:
    with workspace() as place:
        _show_reading(place)
        _show_training(place)
        _show_sampling(place)


def _show_reading(place: Workspace) -> None:
    reader = place.path / "read.py"
    reader.write_text(_READ)
    lines = []
    for number, (name, statement) in enumerate(_PRINTED.items()):
        script, run_name = place.path / f"print{number}.py", f"printed{number}"
        script.write_text(f"for number in range({LINES}):\n    {statement}\n")
        run(place, [program("echelon"), "run", "--name", run_name, str(script)])
        samples = take_turns(
            ROUNDS, {kind: partial(_read, place, reader, run_name, kind) for kind in ("metrics", "lines")}
        )
        figure = Figure(name=name, samples=samples["metrics"], unit="us/line")
        peer = Figure(name="reading alone", samples=samples["lines"], unit="us/line")
        lines.append(Line(figure=figure, peer=peer))
    show(f"Metrics of {LINES:,} lines, beside reading alone (processor time, {ROUNDS} rounds)", lines)


def _read(place: Workspace, reader: Path, name: str, kind: str) -> float:
    return float(run(place, [program("python"), str(reader), name, kind, str(LINES)]))


def _show_training(place: Workspace) -> None:
    script = place.path / "train.py"
    script.write_text(_TRAIN)
    observed, alone = "observed (events -f)", "not observed"
    samples = take_turns(
        ROUNDS,
        {
            observed: partial(_train, place, script, observe=True),
            alone: partial(_train, place, script, observe=False),
        },
    )
    figure = Figure(name=observed, samples=samples[observed], unit="s")
    peer = Figure(name=alone, samples=samples[alone], unit="s")
    show(
        f"A training process of 1,500 steps, a line each (processor time, {ROUNDS} rounds)",
        [Line(figure=figure, peer=peer, target=Target(limit=1.01, sense="at most", of="ratio"))],
    )


def _train(place: Workspace, script: Path, *, observe: bool) -> float:
    name = f"train-{time.monotonic_ns()}"
    echelon = program("echelon")
    run(place, [echelon, "run", "-d", "--name", name, str(script)])
    if observe:
        run(place, [echelon, "events", name, "-f", "-o", "json"])
    run(place, [echelon, "wait", name, "--timeout", f"{PATIENCE:.0f}s"])
    last = run(place, [echelon, "logs", name, "--tail", "1"]).decode()
    return float(last.split()[-1])


def _show_sampling(place: Workspace) -> None:
    script = place.path / "compute.py"
    script.write_text(_COMPUTE)
    shares = take_turns(2, {"samples": partial(_sample, place, script)})["samples"]
    show(
        f"An agent that samples a rank which computes and prints nothing ({LOOK:g} s, 2 rounds)",
        [
            Line(
                figure=Figure(name="processor time of the agent, of a processor", samples=shares, unit="%"),
                target=Target(limit=1.0, sense="at most", of="figure"),
            )
        ],
    )


def _sample(place: Workspace, script: Path) -> float:
    """Per cent of a processor that the agent takes, `nvidia-smi` included where it has ended."""
    name = f"sampled-{time.monotonic_ns()}"
    echelon = program("echelon")
    run(place, [echelon, "run", "-d", "--stall", "10m", "--name", name, str(script)])
    time.sleep(BEGIN)
    status = json.loads(run(place, [echelon, "status", name, "-o", "json"]))
    pid = int(status["workers"][0]["pid"])
    before = processor_time_of(pid, children=True)
    time.sleep(LOOK)
    share = 100 * (processor_time_of(pid, children=True) - before) / LOOK
    run(place, [echelon, "stop", "--now", name])
    return share


if __name__ == "__main__":
    main()
