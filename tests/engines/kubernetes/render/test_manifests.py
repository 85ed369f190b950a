"""A run as objects: the whole of it in golden files, and what must hold of any.

`ECHELON_WRITE_GOLDEN=1 pytest tests/engines/kubernetes/render/test_manifests.py` writes the files anew; read
the difference before you keep it.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engines.kubernetes.rendered import CASES, SHIPPED, Case, objects_of, planned, task_of

from echelon import __version__
from echelon.agent.task import Task
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.ledger import with_jobs
from echelon.engines.kubernetes.record import Shipped, new, read
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.dialects import job as job_dialect
from echelon.engines.kubernetes.render.image import image_note, image_of
from echelon.engines.kubernetes.render.payload import Payload, layout, map_names, weigh
from echelon.errors import InvalidJob, StateTrouble
from echelon.model.job import Job
from echelon.model.pods import template
from echelon.model.pods.pod import KUBEFLOW_KIND, Output, PodOptions
from echelon.model.program import Parent
from echelon.model.resources import Amount, Resources
from echelon.model.run import SCHEMA
from echelon.model.settings import Settings
from echelon.model.world import Group, World

GOLDEN = Path(__file__).parent / "golden"
MOUNT = {"name": "own", "mountPath": "/etc/mpi/more"}


_JSON = (".json", "echelon.dev/plan", "echelon.dev/task")


class Readable(yaml.SafeDumper):
    """JSON in an object on lines of its own, and no anchors."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def dump(objects: list[dict[str, Any]]) -> str:
    """The objects for people to read: what is JSON in them is shown as what it means."""
    text = yaml.dump_all([_opened(each) for each in objects], Dumper=Readable, sort_keys=False, width=110)
    return re.sub(rf"( +version:) {re.escape(__version__)}\n", r"\1 this one\n", text)


def _opened(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: json.loads(each)
            if isinstance(key, str) and key.endswith(_JSON) and isinstance(each, str)
            else _opened(each)
            for key, each in value.items()
        }
    return [_opened(each) for each in value] if isinstance(value, list) else value


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def pods_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["spec"]["template"] for each in of_kind(objects, "Job")]


def check_parent_is_named(case: Case) -> None:
    """All that says which run it belongs to says of a step's run its parent, too; nothing else is other."""
    record, plan = planned(case)
    step = replace(record, job=replace(record.job, parent=Parent(run="t-1", step="train", key="k")))
    dialect = dialects.named(record.job.pod.job_kind)
    plain, found = (
        manifests.render(each, plan, case.shipped, dialect, **case.options) for each in (record, step)
    )
    named = [about["labels"] for about in _metadata(found) if names.RUN in about.get("labels", ())]
    assert len(named) > len(found), "pods, too"
    assert [labels.pop(names.PARENT) for labels in named] == ["t-1"] * len(named)
    assert found[0].pop("data") != plain[0].pop("data"), "the record has the job"
    assert found == plain


def _metadata(value: Any) -> Iterator[dict[str, Any]]:
    """All metadata in objects, that of templates in them too."""
    if isinstance(value, dict):
        yield from [value["metadata"]] if "metadata" in value else ()
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _metadata(each)


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    text, path = dump(objects_of(CASES[name])), GOLDEN / f"{name}.yaml"
    if os.environ.get("ECHELON_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_every_object_is_labelled_as_the_runs_and_says_whose_it_is(name: str) -> None:
    run = CASES[name].said.name
    objects = objects_of(CASES[name])
    for about in (each["metadata"] for each in (*objects, *pods_of(objects))):
        assert about["labels"][names.RUN] == about["labels"]["app.kubernetes.io/instance"] == run
        assert about["labels"][names.OWNER] == "Ann-ann-example.com"
        assert about["annotations"][names.OWNER] == "Ann <ann@example.com>"
    assert objects[0]["metadata"]["annotations"]["echelon.dev/schema"] == str(SCHEMA)
    assert "uid" not in json.dumps(objects)


@pytest.mark.parametrize("name", CASES)
def test_all_that_is_made_for_a_step_names_its_parent(name: str) -> None:
    check_parent_is_named(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_every_mount_has_its_volume_and_no_place_is_taken_twice(name: str) -> None:
    for pod in pods_of(objects_of(CASES[name])):
        container = pod["spec"]["containers"][0]
        volumes = [each["name"] for each in pod["spec"]["volumes"]]
        places = [each["mountPath"] for each in container["volumeMounts"]]
        assert {each["name"] for each in container["volumeMounts"]} == set(volumes)
        assert len(set(volumes)) == len(volumes)
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("name", CASES)
def test_what_the_task_names_is_what_the_pod_has(name: str) -> None:
    """Every file that the agent is told of is in a volume of its pod."""
    case = CASES[name]
    record, plan = planned(case)
    started = manifests.started_objects(record, plan, case.shipped, job_dialect, at=1.0)
    Task(task_of(record, plan, case.shipped, job_dialect))  # the agent's own reading of it
    keys = {names.TASK_KEY, *(piece.key for pieces in layout(case.shipped) for piece in pieces)}
    for pod in pods_of(started.jobs):
        mounted = [each["mountPath"] for each in pod["spec"]["containers"][0]["volumeMounts"]]
        sources = pod["spec"]["volumes"][0]["projected"]["sources"]
        assert len(sources) == 1 + len(layout(case.shipped))
        for path in _paths(started.task):
            folder, _, file = path.rpartition("/")
            assert any((path + "/").startswith(f"{place}/") for place in mounted), path
            assert folder != names.BUNDLE_DIR or file in keys


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _paths(each)
    elif isinstance(value, list):
        for each in value:
            yield from _paths(each)
    elif isinstance(value, str) and value.startswith(names.ROOT):
        yield value


def test_the_bundle_is_what_was_given_and_cannot_change() -> None:
    record, _ = planned(CASES["plain"])
    payload = Payload(agent=b"agent" * 1000, code=os.urandom(1_500_000), digest="d", requirements=b"numpy\n")
    found: dict[str, bytes] = {}
    made = manifests.bundle_objects(record, payload)
    assert [each["metadata"]["name"] for each in made] == map_names("hello", weigh(payload))
    for each in made:
        assert each["immutable"] is True
        assert len(json.dumps(each)) < 1_400_000  # etcd takes requests of 1.5 MiB
        found |= {key: base64.b64decode(text) for key, text in each["binaryData"].items()}
    assert b"".join(found[key] for key in sorted(found) if key.startswith("part-")) == payload.code
    assert found["agent.pyz"] == payload.agent
    assert found["requirements.txt"] == payload.requirements


def test_the_dry_run_shows_the_objects_that_are_made_but_for_secrets_and_bytes() -> None:
    case = CASES["everything"]
    record, plan = planned(case)
    payload = Payload(
        agent=b"a" * 60_000,
        code=b"c" * 1_500_000,
        digest="ab" * 32,
        wheel=b"w" * 1_800_000,
        requirements=b"r" * 30,
    )
    shipped = weigh(payload)
    assert replace(shipped, rest=case.shipped.rest) == case.shipped
    secrets = {"TOKEN": "hunter2", "gang": "hunter3"}
    started = manifests.started_objects(record, plan, shipped, job_dialect, at=0.0)
    made = [
        new(record, shipped),
        *manifests.shipped_objects(record, payload, job_dialect, gang="hunter4", secrets=secrets),
        *started.claims,
        *started.jobs,
    ]
    shown = manifests.render(record, plan, shipped, job_dialect)
    assert [(each["kind"], each["metadata"]["name"]) for each in shown] == [
        (each["kind"], each["metadata"]["name"]) for each in made
    ]
    assert "hunter" not in json.dumps(shown)
    # Nor do secrets stand in what is made, but for the Secret.
    assert [each["kind"] for each in made if "hunter" in json.dumps(each)] == ["Secret"]
    for one, other in zip(made, shown, strict=True):
        if one["kind"] in ("Service", "Job", "PersistentVolumeClaim"):
            assert one == other
        elif one["kind"] == "Secret":
            assert one["stringData"] == {"gang": "hunter4", "TOKEN": "hunter2", "user.gang": "hunter3"}
            assert other["stringData"] == dict.fromkeys(one["stringData"], "***")
        elif "binaryData" in one:
            omitted = other["metadata"]["annotations"][names.OMITTED]
            assert all(key in omitted for key in one["binaryData"])


def _made(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "metadata": {**job["metadata"], "ownerReferences": [{"uid": "the-record"}]}}


def test_the_record_is_read_back_as_it_was() -> None:
    record, plan = planned(CASES["everything"])
    shown = manifests.render(record, plan, SHIPPED, job_dialect)
    found = with_jobs(
        replace(read(shown[0], record.ref), uid="the-record"), map(_made, of_kind(shown, "Job"))
    )
    assert found.run == replace(record, plan=plan, results="")
    assert found.shipped == SHIPPED
    assert set(new(replace(record, plan=plan), SHIPPED)["data"]) == {"record.json"}


def test_a_record_of_another_hand_is_refused_with_a_way_out() -> None:
    record, _ = planned(CASES["plain"])
    made = new(record, SHIPPED)
    made["metadata"]["annotations"]["echelon.dev/shipped"] = "[]"
    with pytest.raises(StateTrouble, match="echelon rm hello"):
        read(made, record.ref)
    del made["metadata"]["annotations"]["echelon.dev/shipped"]
    assert read(made, record.ref).shipped == Shipped()


def test_user_and_group_are_set_only_where_the_namespace_asks_for_them() -> None:
    record, plan = planned(CASES["plain"])
    for level in ("", "privileged", "baseline"):
        pod = job_dialect.render(record, plan, SHIPPED, security_level=level)[0]["spec"]["template"]["spec"]
        assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    pod = job_dialect.render(record, plan, SHIPPED, security_level="restricted")[0]["spec"]["template"][
        "spec"
    ]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 1000


def job_for(need: Resources, *, workers: int = 1, **pod: Any) -> dict[str, Any]:
    """The Job of a run whose workers need that."""
    record, plan = planned(CASES["plain"])
    world = World(groups=(Group(workers=workers, procs=1, resources=need),))
    seats = tuple(replace(plan.placement.seats[0], worker=number) for number in range(workers))
    plan = replace(plan, world=world, placement=replace(plan.placement, seats=seats))
    job = replace(record.job, pod=PodOptions(**pod))
    return job_dialect.render(replace(record, job=job), plan, SHIPPED)[0]


def spec_of(need: Resources, **pod: Any) -> dict[str, Any]:
    spec: dict[str, Any] = job_for(need, **pod)["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    ("need", "resources"),
    [
        (Resources(), {}),
        (Resources(cpus=Amount(request=0.5)), {"requests": {"cpu": "500m"}}),
        (Resources(cpus=Amount(request=0.0001)), {"requests": {"cpu": "1m"}}),
        (
            Resources(cpus=Amount(request=2, limit=4.1)),
            {"requests": {"cpu": "2"}, "limits": {"cpu": "4100m"}},
        ),
        (Resources(memory=Amount(request=2**30)), {"requests": {"memory": "1Gi"}}),
        (
            Resources(memory=Amount(request=10**9, limit=1.5 * 2**30)),
            {"requests": {"memory": "1000000000"}, "limits": {"memory": "1536Mi"}},
        ),
        (Resources(gpus=2), {"limits": {"nvidia.com/gpu": "2"}}),
        (Resources(other={"amd.com/gpu": 1}), {"limits": {"amd.com/gpu": "1"}}),
    ],
)
def test_resources(need: Resources, resources: dict[str, Any]) -> None:
    assert spec_of(need)["containers"][0]["resources"] == resources


def test_shared_memory_is_half_of_the_limit_unless_said() -> None:
    def shm(need: Resources, **pod: Any) -> dict[str, Any]:
        volume: dict[str, Any] = next(
            each for each in spec_of(need, **pod)["volumes"] if each["name"] == "shm"
        )
        return volume["emptyDir"]

    limited = Resources(memory=Amount(request=2**30, limit=2**31))
    assert shm(limited) == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert shm(limited, shm=2**20) == {"medium": "Memory", "sizeLimit": "1Mi"}
    assert shm(Resources(memory=Amount(request=2**30))) == {"medium": "Memory"}


def test_taints_of_what_is_asked_for_are_tolerated() -> None:
    def keys(need: Resources, **pod: Any) -> list[str]:
        return [each["key"].partition("/")[2] or each["key"] for each in spec_of(need, **pod)["tolerations"]]

    away = ["not-ready", "unreachable"]
    assert keys(Resources()) == away
    assert spec_of(Resources())["tolerations"][0]["tolerationSeconds"] == 120
    assert keys(Resources(gpus=1)) == ["gpu", *away]
    assert keys(Resources(other={"nvidia.com/mig-1g.5gb": 1})) == ["gpu", "mig-1g.5gb", *away]
    assert keys(Resources(other={"rdma/hca": 1})) == ["hca", *away]


def test_who_tolerates_silent_nodes_longer_is_not_overruled() -> None:
    from echelon.model.pods.pod import Toleration

    patient = (Toleration(key="node.kubernetes.io/unreachable", effect="NoExecute"),)
    found = spec_of(Resources(), tolerations=patient)["tolerations"]
    assert found[0] == {"key": patient[0].key, "operator": "Exists", "effect": "NoExecute"}
    assert [each["key"] for each in found].count(patient[0].key) == 1


def test_no_gpu_is_seen_by_who_asked_for_none() -> None:
    def hidden(need: Resources) -> bool:
        env = spec_of(need)["containers"][0]["env"]
        return {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in env

    assert hidden(Resources())
    assert not hidden(Resources(gpus=1))
    assert not hidden(Resources(other={"nvidia.com/mig-1g.5gb": 1}))


def test_nodes_that_are_not_known_leave_no_trace() -> None:
    record, plan = planned(CASES["plain"])
    seats = tuple(replace(seat, node="") for seat in plan.placement.seats)
    plan = replace(plan, placement=replace(plan.placement, seats=seats))
    job = job_dialect.render(record, plan, SHIPPED)[0]
    assert names.NODES not in job["metadata"]["annotations"]
    assert "affinity" not in job["spec"]["template"]["spec"]


def test_a_model_that_no_inventory_told_of_is_taken_as_it_was_said() -> None:
    affinity = spec_of(Resources(gpus=1, gpu_type="NVIDIA A100"))["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [
        {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A100"]}]}
    ]


@pytest.mark.parametrize(("workers", "mode"), [(1, "ReadWriteOnce"), (2, "ReadWriteMany")])
def test_a_claim_for_results_is_made_for_as_many_as_write_to_it(workers: int, mode: str) -> None:
    record, plan = planned(CASES["plain"])
    record = replace(record, job=replace(record.job, pod=PodOptions(output=Output())))
    plan = replace(plan, world=World(groups=(Group(workers=workers, procs=1),)))
    claim = manifests.claim_object(record, plan)
    assert claim is not None
    assert claim["metadata"]["name"] == "hello-results"
    assert claim["spec"] == {"accessModes": [mode], "resources": {"requests": {"storage": "10Gi"}}}
    assert manifests.claim_object(replace(record, job=Job(name="hello", script="a")), plan) is None


def test_workers_hold_what_lies_on_no_volume() -> None:
    def hold(**pod: Any) -> float:
        record, plan = planned(CASES["plain"])
        record = replace(record, job=replace(record.job, pod=PodOptions(**pod)))
        task = task_of(record, plan, SHIPPED, job_dialect)
        seconds: float = task["hold"]
        return seconds

    assert hold() == 300.0
    assert hold(linger=0.0) == 0.0
    assert hold(output=Output(claim="work")) == 0.0
    assert hold(output=Output(claim="work"), collect=("/x",)) == 300.0


def test_an_owner_reference() -> None:
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fm", "uid": "1", "labels": {}}}
    assert manifests.owner_reference(made) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "fm",
        "uid": "1",
    }


@pytest.mark.parametrize(
    ("framework", "gpus", "part"),
    [
        ("torch", 0, "pytorch/pytorch:"),
        ("tensorflow", 0, "tensorflow/tensorflow:2"),
        ("tensorflow", 1, "-gpu"),
        ("plain", 0, "python:3"),
        ("jax", 1, "python:3"),
        ("xgboost", 0, "python:3"),
    ],
)
def test_without_an_image_a_default_is_used_and_said(framework: str, gpus: int, part: str) -> None:
    job = Job(name="fm", script="a", framework=framework, resources=Resources(gpus=gpus))
    assert part in image_of(job)
    assert "latest" not in image_of(job)
    note = image_note(job)
    assert note is not None
    assert image_of(job) in note
    assert f"the default for {framework}; --image" in note
    named = replace(job, pod=PodOptions(image="my/own"))
    assert (image_of(named), image_note(named)) == ("my/own", None)


def test_where_no_default_fits_an_image_is_asked_for() -> None:
    with pytest.raises(InvalidJob, match="has no default for mpi") as caught:
        image_of(Job(name="fm", script="a", framework="mpi"))
    assert caught.value.field == "image"
    assert "--image" in caught.value.hint


def test_a_role_has_its_own_command_image_variables_and_template() -> None:
    """And the other workers have nothing of it."""
    objects = objects_of(CASES["whole-role"])
    task = json.loads(pods_of(objects)[0]["metadata"]["annotations"][names.AGENTS_TASK])
    assert [group["launch"]["argv"] for group in task["groups"]] == [
        ["python3", "train.py", "--epochs", "3"],
        ["./serve", "--port", "7000"],
    ]
    assert [group["launch"]["env"] for group in task["groups"]] == [{}, {"LEVEL": "debug"}]
    workers, ps = (pod["spec"] for pod in pods_of(objects))
    assert [each["name"] for each in workers["containers"]] == [names.CONTAINER]
    assert (workers["containers"][0]["image"], ps["containers"][0]["image"]) == (
        "my/trainer:1",
        "my/server:2",
    )
    assert [each["name"] for each in ps["containers"]] == [names.CONTAINER, "metrics"]
    assert ps["nodeSelector"] == {"pool": "cpu"}
    assert "nodeSelector" not in workers
    (pod,) = pods_of(objects)[1:]
    assert pod["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert pod["metadata"]["labels"][names.ROLE] == "ps"


def test_a_template_for_all_workers_gives_way_to_that_of_a_role() -> None:
    said = replace(
        CASES["whole-role"].said, template={"spec": {"nodeSelector": {"pool": "gpu"}, "dnsPolicy": "Default"}}
    )
    workers, ps = (pod["spec"] for pod in pods_of(objects_of(Case(said=said))))
    assert (workers["nodeSelector"], workers["dnsPolicy"]) == ({"pool": "gpu"}, "Default")
    assert ps["nodeSelector"] == {"pool": "cpu"}
    assert "dnsPolicy" not in ps


def test_the_ranks_container_is_called_the_same_everywhere() -> None:
    assert names.CONTAINER == template.CONTAINER


def test_ranks_have_the_width_of_the_callers_terminal_unless_they_set_it() -> None:
    record, plan = planned(Case(said=Settings(script="a.py", framework="plain", env={"LINES": "7"})))
    given = {"COLUMNS": "90", "LINES": "40"}
    task = task_of(record, plan, Shipped(), job_dialect, variables=given)
    assert {"COLUMNS": "90", "LINES": "7"}.items() <= task["env"].items()


@pytest.mark.parametrize(
    ("more", "mounted"),
    [
        ({}, True),
        ({"mount": ("emptydir::/etc/mpi",)}, False),
        ({"template": {"spec": {"containers": [{"name": "worker", "volumeMounts": [MOUNT]}]}}}, False),
        ({"annotation": {}}, False),
    ],
)
def test_a_launcher_of_an_mpi_job_finds_its_files_where_kubeflow_has_them(
    more: dict[str, Any], mounted: bool
) -> None:
    """The launch's own folder, at another place of the launcher's pod; what the user mounts there stays."""
    said = Settings(
        name="mpi",
        command=("mpirun", "--hostfile", "/etc/mpi/hostfile", "true"),
        workers=2,
        roles={"launcher": 1},
        framework="mpi",
        image="my/mpi:1",
        annotation={KUBEFLOW_KIND: "MPIJob"},
    )
    launcher, worker = (
        [each for each in pod["spec"]["containers"][0]["volumeMounts"] if each.get("subPath")]
        for pod in pods_of(objects_of(Case(said=replace(said, **more))))
    )
    assert worker == []
    own = {"name": "work", "mountPath": "/etc/mpi", "subPath": "state/files/worker-0", "readOnly": True}
    assert launcher == ([own] if mounted else [])
    assert f"{names.SPACE}/{own['subPath']}" == f"{names.STATE}/files/worker-0"


def test_a_task_that_is_too_long_for_every_pod_is_in_the_record() -> None:
    record, plan = planned(Case(said=Settings(script="a.py", framework="plain", env={"LONG": "x" * 20_000})))
    made = manifests.started_objects(record, plan, Shipped(), job_dialect, at=1.0)
    assert made.task is not None
    assert json.loads(made.task) == task_of(record, plan, Shipped(), job_dialect)
    (pod,) = pods_of(made.jobs)
    assert names.AGENTS_TASK not in pod["metadata"]["annotations"]
    (bundle,) = (each for each in pod["spec"]["volumes"] if each["name"] == "bundle")
    assert bundle["projected"]["sources"][0]["configMap"]["name"] == record.ref.name
    shown = manifests.render(record, plan, Shipped(), job_dialect)[0]
    assert shown["data"][names.TASK_KEY] == made.task


@pytest.mark.parametrize(
    ("said", "folder"),
    [
        ({"checkpoints": "ckpt/best"}, f"{names.OUTPUT}/ckpt/best"),
        ({"checkpoints": "ckpt", "output": "new:"}, ""),
        ({"gpus": 1}, ""),
    ],
)
def test_the_agents_are_told_which_folder_has_checkpoints(said: dict[str, Any], folder: str) -> None:
    record, plan = planned(Case(said=Settings(script="a.py", framework="plain", image="my/a", **said)))
    task = task_of(record, plan, SHIPPED, job_dialect)
    assert Task(task).checkpoints == folder
    assert ("checkpoints" in task) is bool(folder)
