"""The executor of a sweep: `python -m echelon.sweeps FOLDER`, the program of a run of this machine. It exits
as the first trial that failed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from echelon.engines.abilities import StopOrder
from echelon.engines.base import Engine
from echelon.executor.execution import Execution
from echelon.executor.parent import Own, engine_of_steps, exit_code_of, run_executor
from echelon.model.event import Event
from echelon.model.program import Step
from echelon.sweeps import kept
from echelon.sweeps.trials import Trials, standing


def execute(
    folder: Path,
    told: dict[str, Step],
    report: Callable[[Event], object],
    asked: Callable[[], StopOrder | None] = lambda: None,
    engine: Engine | None = None,
) -> list[Step]:
    """Run the trials of a sweep that are not done; `told` is how they stood when the last executor ended.
    Returns how all stand then.
    """
    sweep, bundle = kept.read(folder)
    engine = engine or engine_of_steps(sweep.on, sweep.context, sweep.namespace)
    work = Trials(sweep, bundle, folder, engine)

    def asked_here() -> StopOrder | None:
        ends = sweep.fail_fast and work.first_failed is not None
        return asked() or (StopOrder() if ends else None)

    steps = standing(sweep, told)
    for step in steps:
        work.changed(step)
    execution = Execution(sweep.name, steps, work, engine, report, asked_here)
    try:
        execution.run()
    finally:
        work.write_table()
    return list(execution.steps.values())


def _work(own: Own) -> int:
    return exit_code_of(execute(Path(sys.argv[1]), own.told(), own.tell, own.asked))


def main() -> int:
    """Execute the sweep in the folder that is given, as the run that this process is a rank of."""
    return run_executor(_work)


if __name__ == "__main__":
    sys.exit(main())
