"""`echelon why`."""

from __future__ import annotations

import click

from echelon.cli.options import complete_runs, find_run, target_options


@click.command("why", short_help="Explain what a run is doing: stuck, slow, waiting, or why it ended.")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_runs)
@target_options
def why(name: str | None, **target: str | None) -> int:
    """Explain what a run is doing (without RUN, the newest of this folder), what costs most first: its
    ranks are stuck, one of them keeps the others waiting, it waits in the queue, for a place or an image, it
    restarts, it is nearly out of memory; of a run that is over, why it ended. Of a notebook's run, the
    same of its steps.

    Which rank comes late to collectives is known of PyTorch; `echelon top RUN` shows it live. Reading changes
    nothing of the run.

    \b
    Examples:
      echelon why
      echelon why RUN
      echelon why RUN/STEP
      echelon why RUN --on k8s -o json
    """
    from echelon.cli.printing.render_usage import reasons

    run = find_run(name, target)
    reasons(run.name, run.uri, run.why(), target["format"] or "text")
    return 0
