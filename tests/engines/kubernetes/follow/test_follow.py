"""Following runs on a real cluster, at the moments when something goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.engines.conformance.harness import PATIENCE, plan_of
from tests.engines.kubernetes.follow.conftest import Threads

from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.errors import StateTrouble
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.output.log import each_line
from echelon.model.pods.pod import PodOptions
from echelon.model.resources import Amount, Resources
from echelon.model.run import RunRef
from echelon.submit import Prepared, submit

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LASTS = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def job(image: Callable[[str], str]) -> Callable[..., Job]:
    def make(program: str = "print('hello')", *, name: str = "demo", **more: Any) -> Job:
        options = PodOptions(image=image("python"), **more.pop("pod", {}))
        command = ("python3", "-c", program)
        return Job(name=name, command=command, framework="plain", cwd="/tmp", pod=options, **more)

    return make


def test_leaving_a_run_leaves_no_thread(
    engine: KubernetesEngine, job: Callable[..., Job], threads: Threads
) -> None:
    def following() -> list[threading.Thread]:
        return threads("watch ", "log ", "events")

    run = submit(Prepared(job=job(LASTS, workers=2)), engine)
    pieces, events = run.raw_logs(), run.events()
    lines = each_line(pieces)
    assert {next(lines).text, next(lines).text} == {"up"}
    assert next(events).kind == "recorded"
    assert following()
    pieces.close()  # type: ignore[attr-defined]
    events.close()  # type: ignore[attr-defined]
    wait_until(lambda: not following(), "every thread to end")
    run.stop(now=True)


def test_a_run_that_is_removed_while_it_is_followed(
    engine: KubernetesEngine, job: Callable[..., Job], namespace: Kubectl
) -> None:
    run = submit(Prepared(job=job(LASTS)), engine)
    lines, events = each_line(run.raw_logs()), run.events()
    assert next(lines).text == "up"
    assert next(events).kind == "recorded"
    namespace("delete", "job", "demo", "--cascade=foreground", "--wait=false", "--grace-period=1")
    list(events)  # they end, whether the end of the run was seen or only that it is gone
    assert list(lines) == []
    wait_until(lambda: not engine.runs(), "nothing to be left of it")


def test_a_submission_that_is_cut_off_is_no_run_that_starts(
    engine: KubernetesEngine, job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off between the plan and the Jobs: nobody waits for ever, and it can be gone on with or removed."""
    monkeypatch.setattr(record, "SUBMISSION", 1.0)
    wanted = job()
    ref = engine.record(wanted, None)
    plan = plan_of(wanted, engine)
    with monkeypatch.context() as broken:
        broken.setattr("echelon.engines.kubernetes.objects.tie_record", _cut_off)
        broken.setattr("echelon.engines.kubernetes.objects.create", _cut_off)
        with pytest.raises(KeyboardInterrupt):
            engine.start(ref, plan)
    run = Run(ref, engine)
    with pytest.raises(StateTrouble, match="never started"):
        run.wait(PATIENCE)
    assert [each.state for each in engine.runs()] == ["recorded"]
    assert run.status().state == "recorded"
    assert submit(Prepared(job=wanted), engine).wait(PATIENCE).state == "succeeded"


def _cut_off(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_two_start_it_at_once(engine: KubernetesEngine, job: Callable[..., Job], namespace: Kubectl) -> None:
    wanted = job(workers=2)
    ref = engine.record(wanted, None)
    plan = plan_of(wanted, engine)
    threads = [threading.Thread(target=engine.start, args=(ref, plan)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Run(ref, engine).wait(PATIENCE).state == "succeeded"
    assert len(namespace.items("job")) == 1


def test_a_name_that_somebody_elses_job_has(
    engine: KubernetesEngine, job: Callable[..., Job], namespace: Kubectl, image: Callable[[str], str]
) -> None:
    from echelon.errors import Refused

    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": image("python")}]}
    spec = {"suspend": True, "template": {"spec": pod}}
    namespace.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "demo"}, "spec": spec})
    with pytest.raises(Refused, match="not echelon's"):
        submit(Prepared(job=job()), engine)
    assert engine.runs() == []
    assert [each["metadata"]["name"] for each in namespace.items("job")] == ["demo"]


@pytest.mark.core
@pytest.mark.alone  # it takes most of every node, for which other tests would have to wait
def test_a_wait_on_ones_own_run_admits_it(engine: KubernetesEngine, job: Callable[..., Job]) -> None:
    nodes = engine.cluster(gpus=False).nodes
    most = Resources(cpus=Amount(request=0.55 * max(node.cpus for node in nodes)))  # of a node: one fits
    first = submit(Prepared(job=job(LASTS, name="first", workers=len(nodes), resources=most)), engine)
    second = submit(Prepared(job=job(name="second", resources=most)), engine)
    assert second.status().state == "queued"
    told: list[str] = []
    watching = threading.Thread(
        target=lambda: told.extend(each.kind for each in second.events()), daemon=True
    )
    watching.start()
    wait_until(lambda: "queued" in told, "the line")
    other = Run(RunRef(engine="k8s", name="second"), engine)
    waiting = threading.Thread(target=lambda: told.append(other.wait(PATIENCE).state), daemon=True)
    waiting.start()
    first.stop(now=True)
    waiting.join(PATIENCE)
    watching.join(PATIENCE)
    assert "succeeded" in told
    # The reason for which it is queued may change while the first run leaves.
    stages = [kind for kind in told if kind in ("recorded", "queued", "admitted", "finished")]
    assert list(dict.fromkeys(stages)) == ["recorded", "queued", "admitted", "finished"]
    assert sorted(stages, key=["recorded", "queued", "admitted", "finished"].index) == stages


def test_a_run_that_holds_its_results_is_over_for_everybody(
    engine: KubernetesEngine, job: Callable[..., Job]
) -> None:
    """Its pods still run; `ps`, `status` and whoever follows say the same."""
    run = submit(Prepared(job=job()), engine)
    assert list(run.events())[-1].kind == "finished"
    status = run.status()
    assert status.state == "succeeded"
    assert status.held_until is not None
    assert [each.state for each in engine.runs()] == ["succeeded"]
    with pytest.raises(StateTrouble, match="not fetched yet"):
        run.remove()
    assert run.wait(PATIENCE).held_until is None
    run.remove()
    assert names.RUN  # its name is free
    assert engine.runs() == []
