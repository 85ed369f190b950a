"""What `top` shows of a cluster."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.engines.kubernetes.cluster_objects import (
    GIB,
    ME,
    Object,
    container,
    job,
    node,
    places,
    pod,
    waits,
    worker,
)
from tests.engines.kubernetes.typed import typed

from echelon.cli.printing.render_cluster import cluster_usage
from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.nodes.inventory import Seen
from echelon.engines.kubernetes.nodes.usage import to_usage
from echelon.engines.kubernetes.render.dialects import InQueue
from echelon.model.engine.usage import ClusterRun, ClusterUsage

ONE = container(gpu="1", cpu="1500m", memory="2Gi")


def seen(
    nodes: list[Object] | None,
    pods: list[Object] | None = None,
    jobs: list[Object] | None = None,
    waiting: list[InQueue] | None = None,
    *,
    all_namespaces: bool = True,
) -> Seen:
    return Seen(
        nodes=None if nodes is None else typed(shapes.Node, nodes),
        pods=typed(shapes.Occupant, pods or []),
        places=places(jobs or []),
        waiting=waiting or [],
        all_namespaces=all_namespaces,
    )


def busy(*, all_namespaces: bool = True) -> ClusterUsage:
    return to_usage(
        seen(
            [node("cpu"), node("gpu-b", gpus=2, unschedulable=True), node("gpu-a", gpus=4)],
            [
                worker("fm", 0, "gpu-a", ONE),
                worker("fm", 1, "gpu-b", ONE),
                pod("jupyter", "gpu-a", container(gpu="2", cpu="1"), namespace="lab"),
            ],
            [job("fm", ["gpu-a", "gpu-b"], ONE), job("next", ["gpu-a"], ONE)],
            [waits("later", 5.0)],
            all_namespaces=all_namespaces,
        ),
        ME,
    )


def test_nodes_with_gpus_come_first_and_tell_who_uses_them() -> None:
    usage = busy()
    assert usage.nodes is not None
    first, second, third = usage.nodes
    assert (first.node, first.state, first.model, first.gpus, first.gpus_used) == (
        "gpu-a",
        "ready",
        "NVIDIA-A100-SXM4-80GB",
        4,
        4,
    )
    assert first.users == {"fm": 1, "lab/jupyter": 2, "next": 1}
    assert (first.cpus, first.cpus_used) == (8, 4.0)  # what was promised to `next` counts
    assert (first.memory, first.memory_used) == (32 * GIB, 4 * GIB)
    assert (second.node, second.state, second.gpus_used) == ("gpu-b", "cordoned", 1)
    assert (third.node, third.gpus, third.model, third.users) == ("cpu", 0, "", {})


def test_runs_and_what_they_take() -> None:
    assert busy().runs == (
        ClusterRun(
            name="fm", state="running", workers=2, cpus=3.0, memory=4 * GIB, gpus=2, nodes=("gpu-a", "gpu-b")
        ),
        ClusterRun(name="next", state="starting", workers=0, cpus=0, memory=0, gpus=0),
        ClusterRun(name="later", state="queued", workers=0, cpus=0, memory=0, gpus=0),
    )


def test_jobs_of_kubeflows_controllers_have_their_address() -> None:
    """Two pods with GPUs, one without, and one that has ended: what the job holds is told, by job."""
    new = "training.kubeflow.org/"
    labels = {f"{new}operator-name": "pytorchjob-controller", f"{new}job-name": "bert"}
    mpi = {f"{new}operator-name": "mpi-operator", f"{new}job-name": "pi"}
    old = {"controller-name": "tfjob-controller", "job-name": "mnist", "group-name": "kubeflow.org"}
    jobset = {"jobset.sigs.k8s.io/jobset-name": "tuned"}
    usage = to_usage(
        seen(
            [node("gpu-a", gpus=8)],
            [
                pod("bert-master-0", "gpu-a", ONE, namespace=ME, labels=labels),
                pod("bert-worker-0", "gpu-a", ONE, namespace=ME, labels=labels),
                pod("bert-worker-1", "gpu-a", ONE, namespace=ME, labels=labels, phase="Succeeded"),
                pod("pi-worker-0", "gpu-a", ONE, namespace="lab", labels=mpi),
                pod("pi-launcher", "gpu-a", container(cpu="1"), namespace="lab", labels=mpi),
                pod("mnist-worker-0", "gpu-a", ONE, namespace="lab", labels=old),
                pod("tuned-node-0-0", "gpu-a", ONE, namespace="lab", labels=jobset),
                pod("other", "gpu-a", ONE, namespace="lab", labels={"job-name": "other"}),
            ],
        ),
        ME,
    )
    assert usage.nodes is not None
    assert usage.nodes[0].users == {
        f"k8s://{ME}/pytorchjob/bert": 2,
        "k8s://lab/mpijob/pi": 1,
        "k8s://lab/tfjob/mnist": 1,
        "k8s://lab/jobset/tuned": 1,
        "lab/other": 1,
    }
    assert [(run.name, run.state, run.workers, run.gpus) for run in usage.runs] == [
        ("k8s://lab/jobset/tuned", "running", 1, 1),
        ("k8s://lab/mpijob/pi", "running", 1, 1),
        ("k8s://lab/tfjob/mnist", "running", 1, 1),
        (f"k8s://{ME}/pytorchjob/bert", "running", 2, 2),
    ]
    assert {each.name for each in usage.holders} == set(usage.nodes[0].users)


def test_what_may_not_be_looked_at_is_unknown_not_nothing() -> None:
    partly = busy(all_namespaces=False)
    assert partly.nodes is not None
    assert {(each.gpus_used, each.cpus_used, each.memory_used, each.users) for each in partly.nodes} == {
        (None, None, None, None)
    }
    blind = to_usage(seen(None, [worker("fm", 0, "gpu-a", ONE)], all_namespaces=False), ME)
    assert blind.nodes is None
    assert [run.name for run in blind.runs] == ["fm"]


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    cluster_usage(busy(), "text")
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "3 nodes, 6 GPUs: 5 used, 0 free",  # the one that is left is on a node that takes nobody
        "",
        "NODE STATE MODEL GPUS USED FREE CPUS MEMORY USED BY",
        "gpu-a ready NVIDIA-A100-SXM4-80GB 4 4 0 4 of 8 4 GiB of 32 GiB lab/jupyter (2), fm (1), next (1)",
        "gpu-b cordoned NVIDIA-A100-SXM4-80GB 2 1 1 1.5 of 8 2 GiB of 32 GiB fm (1)",
        "cpu ready - - - - 0 of 8 0 B of 32 GiB",
        "",
        "NODE HELD BY POD GPUS FOR STATE",
        "gpu-a fm fm-0-abcde 1 ? running",
        "gpu-a lab/jupyter jupyter 2 ? running",
        "gpu-a next - 1 ? starting",
        "gpu-b fm fm-1-abcde 1 ? running",
        "",
        "RUN STATE WORKERS CPUS MEMORY GPUS NODES",
        "fm running 2 3 4 GiB 2 gpu-a, gpu-b",
        "next starting - 0 0 B - -",
        "later queued - 0 0 B - -",
    ]


def test_text_where_we_may_not_look(capsys: pytest.CaptureFixture[str]) -> None:
    cluster_usage(busy(all_namespaces=False), "text")
    text = capsys.readouterr().out
    assert text.startswith("3 nodes, 6 GPUs: free: unknown\n")
    assert "? of 8" in text
    cluster_usage(to_usage(seen(None, all_namespaces=False), ME), "text")
    text = capsys.readouterr().out
    assert text.startswith("nodes: unknown; you may not list them")
    assert text.endswith("\nno runs\n")


def test_many_nodes_fit_on_a_screen_and_all_go_into_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = to_usage(seen([node(f"n{number:03}", gpus=8) for number in range(500)]), ME)
    cluster_usage(many, "text")
    assert len(capsys.readouterr().out.splitlines()) == 505
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setenv("COLUMNS", "120")
    cluster_usage(many, "text")
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 30
    assert any(line.startswith("and ") and line.endswith("more nodes; -o json shows all") for line in shown)
    workers = [worker(f"run-{number}", 0, f"n{number:03}", ONE) for number in range(100)]
    jobs = [job(f"run-{number}", [f"n{number:03}"], ONE) for number in range(100)]
    full = to_usage(seen([node(f"n{number:03}", gpus=8) for number in range(500)], workers, jobs), ME)
    cluster_usage(full, "text")
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 30
    assert sum(line.startswith("and ") for line in shown) == 3


def test_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    cluster_usage(busy(), "json")
    as_json = json.loads(capsys.readouterr().out)
    cluster_usage(busy(), "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert set(as_json) == {"namespace", "nodes", "runs", "holders", "devices"}
    assert as_json["nodes"][0]["users"] == {"fm": 1, "lab/jupyter": 2, "next": 1}
