"""What is rendered, tried on a real API server, also where the namespace enforces `restricted`; and run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.engines.kubernetes.rendered import CASES, Case, planned

from echelon.bundle import pack_files
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.record import new
from echelon.engines.kubernetes.render import manifests
from echelon.engines.kubernetes.render.dialects import job as job_dialect
from echelon.engines.kubernetes.render.payload import load, weigh
from echelon.model.settings import Settings

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SCRIPT = b"""
import os, pathlib
out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
(out / f"from-{os.environ['ECHELON_WORKER']}").write_text("done")
print("worker", os.environ["ECHELON_WORKER"], "of", os.environ["ECHELON_WORKERS"], "uid", os.getuid())
print("shared memory", os.access("/dev/shm", os.W_OK), "code", open("data.txt").read(), os.environ["TOKEN"])
"""
WRITER = b"""
import os, shutil
shutil.copy("second.py", os.environ["ECHELON_OUTPUT"])
"""
SECOND = b"""
import os, pathlib, sys
read = lambda path: pathlib.Path(path).read_text()
print("runs in", os.getcwd(), "and has", read("/settings/colour"), read("/keys/key"))
size = os.statvfs("/dev/shm")
print("shared memory of", size.f_blocks * size.f_frsize)
for folder in ("/scratch", os.environ["ECHELON_OUTPUT"], "/code-to-read"):
    try:
        pathlib.Path(folder, "new").write_text("x")
        print("may write", folder)
    except OSError as error:
        print("may not write", folder, error.strerror)
print(sorted(os.listdir("/code-to-read")))
"""


def listed(objects: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


@pytest.fixture
def restricted(namespace: Kubectl) -> Kubectl:
    """A namespace that takes nothing but what is `restricted`, and warns of the rest."""
    level = "pod-security.kubernetes.io"
    namespace(
        "label", "namespace", namespace.namespace, f"{level}/enforce=restricted", f"{level}/warn=restricted"
    )
    return namespace


@pytest.mark.core
@pytest.mark.parametrize("name", CASES)
def test_the_dry_run_is_taken_by_the_api_server(name: str, namespace: Kubectl) -> None:
    record, plan = planned(CASES[name])
    options = {**CASES[name].options, "namespace": namespace.namespace}
    objects = manifests.render(record, plan, CASES[name].shipped, job_dialect, **options)
    said = namespace("apply", "--dry-run=server", "-f", "-", stdin=listed(objects))
    assert len(said.splitlines()) == len(objects)
    assert all(line.endswith("created (server dry run)") for line in said.splitlines())


@pytest.mark.parametrize("name", CASES)
def test_pods_are_taken_where_restricted_is_enforced(name: str, restricted: Kubectl) -> None:
    case = CASES[name]
    # No namespace of that level lets a node's folder or NFS in, whoever asks; the class is not there.
    allowed = tuple(text for text in case.said.mount or () if not text.startswith(("hostPath", "nfs")))
    case = replace(case, said=replace(case.said, mount=allowed, priority_class=None))
    if account := case.said.service_account:
        restricted("create", "serviceaccount", account)
    record, plan = planned(case)
    for job in job_dialect.render(record, plan, case.shipped, security_level="restricted"):
        template = job["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": job["metadata"]["name"]}
        assert "created" in restricted("create", "--dry-run=server", "-f", "-", stdin=listed([pod]))


@pytest.mark.parametrize("level", ["", "restricted"])
def test_a_run_of_two_groups_goes_through(
    level: str, request: pytest.FixtureRequest, namespace: Kubectl, image: Callable[[str], str]
) -> None:
    if level:
        request.getfixturevalue("restricted")
    said = Settings(
        name="whole",
        script="main.py",
        workers=2,
        roles={"chief": 1},
        framework="plain",
        secret=("TOKEN",),
        image=image("python"),
        output="new:10Mi:shared",
        memory="64Mi:256Mi",
    )
    # Noise that no compression makes smaller: it takes three parts.
    files = {"main.py": SCRIPT, "data.txt": b"here", "noise.bin": secrets.token_bytes(1_600_000)}
    text = go(namespace, said, files, level=level, values={"TOKEN": "from the secret"})
    for worker in range(3):
        assert f"worker {worker} of 3 uid {1000 if level else 0}" in text
    assert text.count("shared memory True code here from the secret") == 3


@pytest.mark.parametrize("level", ["", "restricted"])
def test_what_is_mounted_is_there_and_what_is_read_only_is_that(
    level: str,
    request: pytest.FixtureRequest,
    namespace: Kubectl,
    image: Callable[[str], str],
    shared_class: str,
) -> None:
    """The first run leaves code on a claim; the second runs it from there."""
    if level:
        request.getfixturevalue("restricted")
    namespace("create", "configmap", "settings", "--from-literal=colour=blue")
    namespace("create", "secret", "generic", "keys", "--from-literal=key=of-brass")
    claim: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "work"},
    }
    claim["spec"] = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": shared_class,
        "resources": {"requests": {"storage": "10Mi"}},
    }
    namespace.create(claim)
    common = Settings(framework="plain", image=image("python"))
    first = replace(common, name="first", script="main.py", output="pvc:work/deep/project")
    go(namespace, first, {"main.py": WRITER, "second.py": SECOND}, level=level)
    second = replace(
        common,
        name="second",
        script="second.py",
        code="pvc:work/deep/project",
        output="pvc:work/results",
        shm="3Mi",
        mount=(
            "pvc:work/deep/project:/code-to-read:ro",
            "configmap:settings:/settings",
            "secret:keys:/keys",
            "emptydir:1Mi:/scratch",
        ),
    )
    text = go(namespace, second, None, level=level)
    assert "runs in /echelon/code and has blue of-brass" in text
    assert f"shared memory of {3 * 2**20}" in text
    assert "may write /scratch" in text
    assert "may write /echelon/results" in text
    assert "may not write /code-to-read Read-only file system" in text
    assert "['.echelon-run', 'logs', 'second.py']" in text


def go(
    namespace: Kubectl,
    said: Settings,
    files: dict[str, bytes] | None,
    *,
    level: str = "",
    values: dict[str, str] | None = None,
) -> str:
    """Make every object of a run, wait for its end, and answer what all its pods have said."""
    record, plan = planned(Case(said=said))
    seats = tuple(replace(seat, node="") for seat in plan.placement.seats)
    plan = replace(plan, placement=replace(plan.placement, seats=seats))
    payload = load(record.job, pack_files(files) if files else None)
    started = manifests.started_objects(
        record, plan, weigh(payload), job_dialect, security_level=level, at=1.0
    )
    written = new(record, weigh(payload))
    gang = secrets.token_hex(16)
    shipped = manifests.shipped_objects(record, payload, job_dialect, gang=gang, secrets=values or {})
    namespace.create(written, *shipped, *started.claims, *started.jobs)
    run = record.ref.name
    for job in started.jobs:
        if job["spec"]["suspend"]:  # one of several, which start when all are there
            namespace("patch", "job", job["metadata"]["name"], "-p", '{"spec": {"suspend": false}}')
    try:
        namespace.wait_for(lambda: _ended(namespace, run), f"{run} to end", patience=180)
    finally:
        said_by = {
            pod["metadata"]["name"]: namespace("logs", pod["metadata"]["name"], "--tail=-1")
            for pod in namespace.items("pods", "-l", names.selector(run))
            if pod["status"].get("phase") != "Pending"
        }
    assert _ended(namespace, run) == "Complete", said_by
    return "\n".join(said_by.values())


def _ended(namespace: Kubectl, name: str) -> str | None:
    conditions = namespace.get("job", name).get("status", {}).get("conditions", [])
    return next(
        (
            each["type"]
            for each in conditions
            if each["type"] in ("Complete", "Failed") and each["status"] == "True"
        ),
        None,
    )
