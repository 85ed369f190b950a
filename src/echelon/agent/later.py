"""What an agent needs only once its ranks run is imported then: in a pod each module is compiled when it is
imported, and the ranks wait for it.

Where such a module is used it is imported inside the function. It is imported here all the same, a moment
later: a package that is upgraded while a run goes on must not change under its agents."""

from __future__ import annotations

SOON = 1.0  # seconds after the start of the agent


def import_rest() -> None:
    """Import them; those that are there already cost nothing."""
    import shutil  # noqa: F401

    import echelon.agent.ending.finish
    import echelon.agent.gang.decisions
    import echelon.agent.gang.lateness
    import echelon.agent.gang.verdict
    import echelon.agent.output.painting
    import echelon.agent.ranks.report
    import echelon.agent.ranks.stuck.hanging
    import echelon.agent.ranks.stuck.looking
    import echelon.agent.ranks.stuck.stacks
    import echelon.agent.ranks.usage.sampler  # noqa: F401
