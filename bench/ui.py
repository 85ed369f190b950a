"""How soon the dashboard answers under load: 200 runs, and one of 64 ranks that has a million stored lines
and prints 10,000 more a second. Times are a real browser's, from what a user does until the answer is drawn,
each the slowest of a round. Then how long it takes until all stored lines are there, and the server's memory.

Needs Playwright and Chromium (`python -m testbed browser`); without them the script says so and exits.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path

from measure.figures import Figure, Line, Target, show
from measure.rounds import PATIENCE, program, run, workspace

_ROOT = str(Path(__file__).parents[1])  # the testbed is no part of what is installed
ROUNDS = 5
_SOON = Target(limit=100, sense="at most", of="figure")


def main() -> None:
    sys.path.append(_ROOT)
    from testbed.chromium import find_chromium

    chromium = find_chromium()
    if chromium is None or importlib.util.find_spec("playwright") is None:
        print("ui.py is left out: it needs Playwright and Chromium (python -m testbed browser)")
        return
    from measure import dashboard

    with workspace() as place:
        home, said = Path(place.environment["ECHELON_HOME"]), place.path / "said"
        dashboard.start_flood(place.path, place.environment, home)
        server, address = dashboard.start_dashboard(place.path, place.environment)
        visitor = dashboard.start_visitor(chromium, address, ROUNDS, said)
        began, held = time.monotonic(), 0.0
        full = 0.0
        try:
            while visitor.poll() is None and "done" not in said.read_text():
                held = max(held, dashboard.anonymous_memory_of(server.pid))
                full = full or (time.monotonic() - began if "full" in said.read_text() else 0.0)
                time.sleep(0.05)
            (place.path / dashboard.OVER).touch()
            run(place, [program("echelon"), "wait", dashboard.NAME])
            dashboard.tell(visitor, "")
            if visitor.wait(PATIENCE):
                sys.exit(said.read_text())
        finally:
            (place.path / dashboard.OVER).touch()
            dashboard.end(visitor, server)
        took = json.loads(said.read_text().splitlines()[-1])["took"]
    lines = [
        Line(figure=Figure(name=name, samples=_slowest(samples), unit="ms"), target=_SOON)
        for name, samples in took.items()
    ]
    lines.append(
        Line(
            figure=Figure(name="the server's memory, at most", samples=[held], unit="MB"),
            target=Target(limit=150, sense="at most", of="figure"),
        )
    )
    lines.append(
        Line(figure=Figure(name="until all stored lines are shown", samples=[full * 1000], unit="ms"))
    )
    show(
        f"The dashboard: {dashboard.RUNS} runs, {dashboard.STORED:,} lines and more ({ROUNDS} rounds)", lines
    )


def _slowest(samples: list[float]) -> list[float]:
    """Of each round."""
    each = len(samples) // ROUNDS
    return [max(samples[start : start + each]) for start in range(0, len(samples), each)]


if __name__ == "__main__":
    main()
