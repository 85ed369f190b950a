"""Who holds which GPUs since when, and who holds them without computing."""

from __future__ import annotations

import time

import pytest
from tests.engines.kubernetes.cluster_objects import ME, Object, container, job, node, pod, worker
from tests.engines.kubernetes.nodes.test_usage import seen

from echelon.cli.printing.render_cluster import cluster_usage
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.nodes.holders import leaders, mark_idle
from echelon.engines.kubernetes.nodes.inventory import Seen
from echelon.engines.kubernetes.nodes.usage import to_usage
from echelon.engines.kubernetes.render import dialects
from echelon.model.engine.usage import ClusterUsage, Holder

TWO = container(gpu="2")


def since(made: Object, hours: float, phase: str = "Running") -> Object:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600 * hours))
    return {**made, "status": {"phase": phase, "startTime": at}}


def keeper(run: str, on: str) -> Object:
    about = {names.RUN: run, names.COMPONENT: names.KEEPER}
    return pod(f"{run}-keeper-xyz", on, container(cpu="100m"), namespace=ME, labels=about)


def busy_cluster() -> Seen:
    pods = [
        since(worker("done", 0, "b", TWO), 2),
        since(worker("fm", 0, "a", TWO), 1),
        since(worker("fm", 1, "b", TWO), 3, phase="Pending"),
        since(worker("theirs", 0, "a", TWO, namespace="lab"), 9),
        worker("fm", 7, None, TWO),
        since(worker("over", 0, "a", TWO), 5, phase="Failed"),
        since(worker("small", 0, "a", container(cpu="1")), 5),
        keeper("done", "a"),
    ]
    return seen([node("a", gpus=8), node("b", gpus=8)], pods, [job("next", ["b"], TWO)])


def busy() -> ClusterUsage:
    return to_usage(busy_cluster(), ME)


def told(holder: Holder) -> tuple[str, str, str, int, str]:
    return holder.node, holder.name, holder.pod, holder.gpus, holder.state


def test_every_pod_with_gpus_and_every_keeper_by_node_the_longest_first() -> None:
    holders = busy().holders
    assert [told(each) for each in holders] == [
        ("a", "lab/theirs", "theirs-0-abcde", 2, "running"),
        ("a", "fm", "fm-0-abcde", 2, "running"),
        ("a", "done", "done-keeper-xyz", 0, "keeping"),
        ("b", "fm", "fm-1-abcde", 2, "starting"),
        ("b", "done", "done-0-abcde", 2, "running"),
        ("b", "next", "", 2, "starting"),
    ]
    now = time.time()
    ages = [None if each.since is None else round((now - each.since) / 3600) for each in holders]
    assert ages == [9, 1, None, 3, 2, None]


def test_a_run_that_is_over_is_an_idle_holder() -> None:
    usage = busy()
    led = leaders(busy_cluster(), ME)
    assert {run: pod for run, (pod, _) in led.items()} == {
        "fm": "fm-0-abcde",
        "done": "done-0-abcde",
    }  # those of our namespace
    idle = mark_idle(usage, {"done"})
    lingering = [each.pod for each in idle.holders if each.state == "lingering"]
    assert lingering == ["done-0-abcde"]
    assert [each.state for each in usage.holders].count("lingering") == 0


@pytest.mark.parametrize("dialect", dialects.DIALECTS)
def test_the_leader_of_every_kind_of_run_is_known(dialect: str) -> None:
    known = dialects.named(dialect)
    labels = {names.RUN: "fm", **known.leader_selector("fm")}
    others = {key: "1" if key != names.RUN else "fm" for key in labels}
    own = {**TWO, "name": known.CONTAINER}
    pods = [
        since(pod("first", "a", own, namespace=ME, labels=labels), 1),
        since(pod("second", "a", own, namespace=ME, labels=others), 1),
    ]
    led = leaders(seen([node("a", gpus=8)], pods), ME)
    assert led == {"fm": ("first", known.CONTAINER)}


def test_idle_holders_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    cluster_usage(mark_idle(busy(), {"done"}), "text")
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = lines.index("NODE HELD BY POD GPUS FOR STATE")
    assert lines[at + 1].startswith("b done done-0-abcde 2 2 h")
    assert lines[at + 1].endswith("idle: its run is over, its results are not fetched")
    assert "a done done-keeper-xyz - ? idle: keeps its run's results, without GPUs" in lines


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    cluster_usage(mark_idle(busy(), {"done"}), "json")
    holders = json.loads(capsys.readouterr().out)["holders"]
    assert [each["name"] for each in holders if each["state"] == "lingering"] == ["done"]
    assert {"node", "name", "pod", "gpus", "since", "state"} == set(holders[0])
