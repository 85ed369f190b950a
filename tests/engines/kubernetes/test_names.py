"""Names that the parts of a run know each other by."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.kubernetes.small import pod

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.state.workers import worker_of
from echelon.model.job import NAME_LENGTH, ROLES
from echelon.model.world import Group, World, members

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
RUNS = st.from_regex(rf"[a-z]([-a-z0-9]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?", fullmatch=True)
GROUPS = st.lists(
    st.builds(
        Group,
        role=st.sampled_from(["worker", *ROLES]),
        workers=st.integers(1, 99_999),
        procs=st.just(1),
    ),
    min_size=1,
    max_size=6,
).map(lambda groups: World(groups=tuple(groups)))


@settings(deadline=None)
@given(RUNS, GROUPS)
def test_every_name_is_one_that_kubernetes_takes(run: str, world: World) -> None:
    jobs = names.job_names(run, world)
    assert len(set(jobs)) == len(jobs)
    assert jobs[0] == run
    hosts = [f"{job}-{group.workers - 1}" for job, group in zip(jobs, world.groups, strict=True)]
    for name in (*jobs, *hosts, names.bundle_name(run, 99, "0" * 8), names.claim_name(run)):
        assert DNS_LABEL.fullmatch(name)


def test_jobs_are_called_by_role() -> None:
    def groups(*roles: str) -> World:
        return World(groups=tuple(Group(role=role, workers=1, procs=1) for role in roles))

    assert names.job_names("fm", groups("worker")) == ("fm",)
    assert names.job_names("fm", groups("chief", "worker", "ps")) == ("fm", "fm-worker", "fm-ps")
    assert names.job_names("fm", groups("worker", "worker")) == ("fm", "fm-2")


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_a_pod_finds_its_worker_by_its_job_and_its_index(counts: list[int]) -> None:
    world = World(groups=tuple(Group(workers=count, procs=1) for count in counts))
    first = names.first_workers(world)
    found = [
        worker_of(pod(first[number] + index, first=first[number]))
        for number, count in enumerate(counts)
        for index in range(count)
    ]
    assert found == [member.worker for member in members(world)]


@given(st.text())
def test_any_owner_makes_a_label(owner: str) -> None:
    assert LABEL_VALUE.fullmatch(names.owner_slug(owner))


@pytest.mark.parametrize(
    ("owner", "slug"),
    [
        ("ann", "ann"),
        ("Ann Onymous <a@b.c>", "Ann-Onymous-a-b.c"),
        ("", "unknown"),
        ("-", "unknown"),
        ("x" * 80, "x" * 63),
    ],
)
def test_owners(owner: str, slug: str) -> None:
    assert names.owner_slug(owner) == slug


def test_no_secret_of_a_users_is_taken_for_the_runs_own() -> None:
    assert names.secret_key("TOKEN") == "TOKEN"
    assert names.secret_key(names.GANG_KEY) != names.GANG_KEY


def test_selectors_and_commands() -> None:
    assert names.selector("fm") == "echelon.dev/run=fm"
    assert names.selector("fm", names.WORKER) == "echelon.dev/run=fm,app.kubernetes.io/component=worker"
    assert names.leader_host("fm") == "fm"
    assert names.agent_command(None, "files", "list") == [
        "python3",
        "-S",
        "/echelon/bundle/agent.pyz",
        "files",
        "list",
    ]
    assert names.control_command("/opt/python", "stop") == [
        "/opt/python",
        "-S",
        "/echelon/bundle/agent.pyz",
        "control",
        "/echelon/space/state/control.sock",
        "stop",
    ]
