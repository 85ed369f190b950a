"""The executor of a sweep: `python -m echelon.sweeps FOLDER`, the program of a run of this machine. It exits
as the first trial that failed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from echelon.agent.gang.verdict import STOPPED_EXIT_CODE
from echelon.engines.abilities import StopOrder
from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.errors import EchelonError
from echelon.executor.execution import Execution
from echelon.executor.parent import Own, await_children
from echelon.model.event import Event
from echelon.model.program import DONE, Step
from echelon.sweeps import kept
from echelon.sweeps.kept import Sweep
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
    engine = engine or _engine_of(sweep)
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


def exit_code_of(steps: list[Step]) -> int:
    """As the first trial that failed; 0 if all are done."""
    if all(step.state in DONE for step in steps):
        return 0
    return next((step.exit_code for step in steps if step.exit_code), STOPPED_EXIT_CODE)


def _engine_of(sweep: Sweep) -> Engine:
    return choose_engine(
        CLUSTER if sweep.on else LOCAL, context=sweep.context or None, namespace=sweep.namespace or None
    )


def main() -> int:
    """Execute the sweep in the folder that is given, as the run that this process is a rank of."""
    own = Own()
    try:
        steps = execute(Path(sys.argv[1]), own.told(), own.tell, own.asked)
    except EchelonError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        await_children()
    return exit_code_of(steps)


if __name__ == "__main__":
    sys.exit(main())
