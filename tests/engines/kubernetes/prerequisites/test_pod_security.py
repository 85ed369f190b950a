"""A run in a namespace of the level `restricted`, by somebody who may not even read that it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from testbed.patience import FACTOR

from echelon.engines.kubernetes.doctor.rights import MINIMAL_ROLE
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.engines.kubernetes.prerequisites.pod_security import level_of
from echelon.model.job import Job
from echelon.model.pods.pod import PodOptions
from echelon.submit import Prepared, submit

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.core
@pytest.mark.parametrize("may_know", [True, False])
def test_a_run_where_pods_may_not_be_root(
    namespace: Kubectl,
    image: Callable[[str], str],
    user: Callable[..., Kubectl],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    may_know: bool,
) -> None:
    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=restricted")
    rules = [rule for rule in MINIMAL_ROLE if may_know or "namespaces" not in rule["resources"]]
    monkeypatch.setenv("KUBECONFIG", str(user("ann", rules).kubeconfig))
    monkeypatch.chdir(tmp_path)
    engine = KubernetesEngine()
    assert level_of(engine.api) == ("restricted" if may_know else None)
    job = Job(
        name="modest",
        command=("sh", "-c", "id -u; cat /proc/self/attr/current 2>/dev/null; touch $ECHELON_OUTPUT/here"),
        framework="plain",
        cwd="/tmp",
        workers=2,
        pod=PodOptions(image=image("python")),
    )
    run = submit(Prepared(job=job), engine)
    assert run.wait(90 * FACTOR).state == "succeeded"
    assert next(line.text for line in run.logs(rank=1)) == "1000"
    assert (tmp_path / "runs" / "modest" / "worker-1" / "here").exists()
    run.remove()
    assert namespace.items("jobs,pods,services,secrets", "-l", "echelon.dev/run=modest") == []
