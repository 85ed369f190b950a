"""Runs whose objects the tests look at: plain, with everything said, and with roles under `restricted`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from echelon.engines.kubernetes.record import Shipped
from echelon.engines.kubernetes.render.dialects import Dialect
from echelon.engines.kubernetes.render.dialects import job as job_dialect
from echelon.engines.kubernetes.render.manifests import render
from echelon.engines.kubernetes.render.task import write_task
from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.plan import Placement, Plan
from echelon.model.run import Record, RunRef
from echelon.model.settings import RoleSettings, Settings
from echelon.placement import place
from echelon.planning import candidates, make_plan

MODEL = "NVIDIA-A100-SXM4-80GB"
SHIPPED = Shipped(agent=60_000, code=1_500_000, digest="ab" * 32, rest="cd" * 32)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job as the user says it, and how it is rendered."""

    said: Settings
    shipped: Shipped = SHIPPED
    gpu_models: dict[str, tuple[str, ...]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


_SERVER = RoleSettings(
    workers=2,
    command=("./serve",),
    args=("--port", 7000),
    env={"LEVEL": "debug"},
    image="my/server:2",
    cpus=2,
    template={
        "metadata": {"annotations": {"prometheus.io/scrape": "true"}, "labels": {"echelon.dev/role": "mine"}},
        "spec": {
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "securityContext": {"runAsUser": 1234, "seccompProfile": {"type": "Unconfined"}},
            "restartPolicy": "Always",
            "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "work", "hostPath": {"path": "/"}}],
            "containers": [
                {
                    "name": "worker",
                    "env": [{"name": "ECHELON_POD_IP", "value": "1.2.3.4"}, {"name": "MINE", "value": "1"}],
                    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                    "ports": [{"containerPort": 7000}],
                },
                {
                    "name": "metrics",
                    "image": "my/metrics:3",
                    # What the level `restricted` wants of a user's own container is the user's to say.
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                },
            ],
        },
    },
)
CASES = {
    "plain": Case(said=Settings(name="hello", script="hello.py", framework="plain")),
    "everything": Case(
        said=Settings(
            name="fm",
            script="train.py",
            args=("--out", "{output}"),
            workers=2,
            gpus=4,
            gpu_type="A100",
            cpus="4:8",
            memory="16Gi:32Gi",
            resource={"rdma/hca": 1},
            framework="torch",
            env={"LR": "1e-3"},
            secret=("TOKEN", "gang"),
            python="/opt/conda/bin/python",
            restarts=3,
            timeout="2h",
            image="registry.example.com:5000/team/torch:2",
            pull="always",
            pull_secret=("registry",),
            mount=(
                "pvc:work/data:/data:ro",
                "configmap:settings:/etc/settings",
                "secret:keys:/etc/keys",
                "nfs:10.0.0.5:/export:/nfs",
                "hostPath:/mnt/scratch:/mnt/scratch",
                "emptydir:20Gi:/scratch",
            ),
            node_selector={"pool": "training"},
            toleration=("dedicated=training:NoSchedule", "spot"),
            service_account="trainer",
            priority_class="training",
            shm="8Gi",
            pip=("einops", "timm==1.0"),
            requirements="requirements.txt",
            output="pvc:work/results/fm",
            linger="10m",
            ttl="1d",
            collect=("/data/cache",),
            label={"team": "vision", "example.com/project": "p1"},
            annotation={"example.com/cost-centre": "4711, of the labs"},
        ),
        shipped=Shipped(
            agent=60_000, code=1_500_000, wheel=1_800_000, requirements=30, digest="ab" * 32, rest="cd" * 32
        ),
        gpu_models={"A100": (MODEL, "NVIDIA-A100-PCIE-40GB")},
    ),
    "kept": Case(
        said=Settings(
            name="kept",
            script="train.py",
            framework="torch",
            workers=2,
            gpus=1,
            image="my/torch:2",
            secret=("TOKEN",),
            mount=("pvc:work/data:/data",),
            toleration=("spot",),
            node_selector={"pool": "training"},
            collect=("/scratch",),
            keep="2d:5Gi",
            checkpoints="{output}/ckpt/",
            ttl="1h",
            template={
                "spec": {
                    "securityContext": {"runAsUser": 1234},
                    "containers": [{"name": "worker", "ports": [{"containerPort": 7000}]}],
                }
            },
        ),
        options={"security_level": "restricted"},
    ),
    "whole-role": Case(
        said=Settings(
            name="served",
            script="train.py",
            args=("--epochs", "3"),
            workers=2,
            roles={"ps": _SERVER},
            framework="plain",
            image="my/trainer:1",
        ),
    ),
    "roles": Case(
        said=Settings(
            name="ps-run",
            module="pkg.train",
            workers=2,
            roles={"chief": 1, "ps": 1},
            framework="tensorflow",
            code="pvc:work/project",
            output="new:5Gi@shared",
        ),
        shipped=Shipped(agent=60_000, rest="cd" * 32),
        options={"security_level": "restricted", "namespace": "team"},
    ),
}


def cluster() -> Cluster:
    """Two nodes of eight GPUs."""
    return Cluster(
        nodes=tuple(
            Node(
                name=name,
                cpus=64.0,
                memory=2.0**38,
                free_cpus=64.0,
                free_memory=2.0**38,
                gpus=tuple(Gpu(id=f"{name}/{number}", model=MODEL) for number in range(8)),
                other={"rdma/hca": 1},
            )
            for name in ("node-a", "node-b")
        )
    )


def record_of(job: Job) -> Record:
    """A record as the engine makes it."""
    ref = RunRef(engine="k8s", name=job.name, namespace="team")
    return Record(ref=ref, job=job, created=1.5, owner="Ann <ann@example.com>", results="/home/ann/runs/x")


def planned(case: Case) -> tuple[Record, Plan]:
    """The record and the plan of a case, on two nodes."""
    from dataclasses import replace

    job = replace(to_job(case.said, name="x"), cwd="{code}")
    (candidate,) = candidates(job, cluster())
    found = place(candidate.world, cluster())
    assert isinstance(found, Placement)
    return record_of(job), replace(
        make_plan(job, candidate.world, found, cluster()), gpu_models=case.gpu_models
    )


def task_of(record: Record, plan: Plan, shipped: Shipped, dialect: Dialect, **more: Any) -> dict[str, Any]:
    """The agents' task, read again."""
    found: dict[str, Any] = json.loads(write_task(record, plan, shipped, dialect, **more))
    return found


def objects_of(case: Case) -> list[dict[str, Any]]:
    """All objects of a case, as the dry run shows them."""
    record, plan = planned(case)
    return render(record, plan, case.shipped, job_dialect, **case.options)
