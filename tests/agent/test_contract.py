"""What agent and client must agree on, although neither may import the other's word for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echelon import __version__
from echelon.agent import task as agent_task
from echelon.agent.gang import verdict
from echelon.agent.ranks.launching import roll
from echelon.agent.setup import packages, prepare
from echelon.errors import CannotShip, RunLost, RunTimedOut, StateTrouble, Unavailable
from echelon.model.run import SCHEMA, Record
from echelon.model.world import Group, World, members

GROUPS = st.lists(
    st.builds(
        Group,
        role=st.sampled_from(["chief", "worker", "ps"]),
        workers=st.integers(1, 4),
        procs=st.integers(1, 3),
        essential=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def test_exit_codes_and_schemas() -> None:
    assert RunLost.exit_code == verdict.LOST_EXIT_CODE
    assert RunTimedOut.exit_code == verdict.TIMEOUT_EXIT_CODE
    assert StateTrouble.exit_code == prepare.FOLDER_EXIT_CODE
    assert CannotShip.exit_code == prepare.CODE_EXIT_CODE
    assert Unavailable.exit_code == packages.EXIT_CODE
    assert __version__ == agent_task.VERSION
    assert Record.__dataclass_fields__["schema"].default == SCHEMA


@given(groups=GROUPS)
def test_who_is_who(groups: list[Group]) -> None:
    """Worker numbers, ranks and indexes are counted twice, here and there, and must come out the same."""
    world = World(groups=tuple(groups))
    theirs = agent_task._places(
        [{"role": g.role, "workers": g.workers, "procs": g.procs, "essential": g.essential} for g in groups]
    )
    for mine, place in zip(members(world), theirs, strict=True):
        assert (mine.worker, mine.group, mine.role, mine.index, mine.first_rank, mine.procs) == (
            place.worker,
            place.group,
            place.role,
            place.index,
            place.first_rank,
            place.procs,
        )
        assert place.essential == groups[place.group].essential


def test_every_placeholder_of_a_launch_is_understood() -> None:
    """The placeholders that frameworks may write are in `Launch`'s docstring; the agent must know each."""
    words = ("rank", "local_rank", "worker", "index", "error_file", "address:0", "port:12", "members:ps")
    for word in (
        *words,
        "file:hostfile",
        "hosts",
        "hosts:worker",
        "machine:4",
        "rank_here:4",
        "ranks_here:4",
        "cross_rank:4",
        "cross_size:4",
        "cross_rank:workers:4",
        "cross_size:workers:4",
        "rendezvous",
        "interface",
    ):
        assert roll.PLACEHOLDER.fullmatch(f"{{{word}}}"), word
