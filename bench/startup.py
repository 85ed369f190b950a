"""How long `echelon --help` and a list of ten runs take: against the interpreter alone, and against the least
that click can do.
"""

from __future__ import annotations

import sys
from functools import partial

from measure.figures import Figure, Line, Target, show
from measure.rounds import program, run, seconds_of, take_turns, workspace

ROUNDS = 20
RUNS = 10
_BARE_GROUP = """\
import click


@click.group()
def cli():
    "Nothing."


@cli.command()
def nothing():
    "Nothing."


cli()
"""


def main() -> None:
    with workspace() as place:
        group = place.path / "group.py"
        group.write_text(_BARE_GROUP)
        (place.path / "script.py").write_text("print('done')\n")
        for _ in range(RUNS):
            run(place, [program("echelon"), "run", "--python", sys.executable, "script.py"])
        commands = {
            "echelon --help": [program("echelon"), "--help"],
            f"echelon ps -a, {RUNS} runs": [program("echelon"), "ps", "-a"],
            "python -c pass": [sys.executable, "-c", "pass"],
            "a bare click group": [sys.executable, str(group), "--help"],
        }
        samples = take_turns(
            ROUNDS, {name: partial(seconds_of, place, words) for name, words in commands.items()}
        )
    ours, listed, python, click = (
        Figure(name=name, samples=[second * 1000 for second in samples[name]], unit="ms") for name in commands
    )
    show(
        f"Start-up of the command line ({ROUNDS} rounds)",
        [
            Line(figure=ours, peer=python, target=Target(limit=4.5, sense="at most", of="ratio")),
            Line(figure=ours, peer=click),
            Line(figure=listed, peer=python, target=Target(limit=5, sense="at most", of="ratio")),
        ],
    )


if __name__ == "__main__":
    main()
