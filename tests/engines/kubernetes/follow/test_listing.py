"""`ps` and `status` of runs in a cluster, as other people and other shells see them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence

import pytest
from testbed.kubectl import Kubectl, Object
from tests.conftest import wait_until

from echelon.admission import plan_anywhere
from echelon.engines.kubernetes.client.place import Place
from echelon.engines.kubernetes.doctor.rights import MINIMAL_ROLE
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.model.job import Job
from echelon.model.pods.pod import PodOptions

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def call(
    cli: Callable[..., subprocess.CompletedProcess[str]], namespace: Kubectl
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line of a user, by name, in the test's namespace."""
    where = {"KUBECONFIG": str(namespace.kubeconfig), "ECHELON_ON": "k8s"}

    def called(user: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **where, "LOGNAME": user, **more}
        command, *rest = words
        place = () if more else ("--namespace", namespace.namespace)
        return cli(command, *place, *rest, env=environment, patience=90)

    return called


@pytest.mark.core
def test_mine_everybodys_and_what_is_held(
    call: Callable[..., subprocess.CompletedProcess[str]],
    image: Callable[[str], str],
    namespace: Kubectl,
    user: Callable[[str, Sequence[Object]], Kubectl],
) -> None:
    started = call(
        *("ann", "run", "-d", "--keep", "10m:0"),
        *("--image", image("python"), "--name", "demo", "--", "true"),
    )
    assert started.stdout == "demo\n", started.stderr
    wait_until(lambda: "succeeded" in call("ann", "ps", "-a").stdout, "the run to end", 60)

    # The cluster decides who somebody is, whatever their local name.
    bob = {"KUBECONFIG": str(user("bob", MINIMAL_ROLE).kubeconfig)}
    assert call("ann", "ps", "-a", "-o", "json", **bob).stdout == "[]\n"
    (row,) = json.loads(call("ann", "ps", "-a", "-A", "-o", "json", **bob).stdout)
    assert (row["name"], row["user"], row["state"]) == ("demo", "ann", "succeeded")
    assert f"{row['owner']} (ann)" in call("ann", "ps", "-aA", **bob).stdout
    (same,) = json.loads(call("another-machine", "ps", "-a", "-o", "json").stdout)
    assert (same["owner"], same["own"]) == (row["owner"], True)
    pod = namespace.items("pods")[0]["metadata"]
    assert pod["annotations"]["echelon.dev/owner"] == row["owner"]
    assert call("ann", "ps", "-o", "json").stdout == "[]\n"  # it is over, though its pod still runs

    status = call("ann", "status", "demo").stdout
    assert "succeeded" in status
    assert re.search(
        r"^  phases +queued [^,]+, pulling [^,]+, starting [^,]+, training ", status, re.MULTILINE
    )
    assert re.search(rf"^  namespace +{namespace.namespace}$", status, re.MULTILINE)
    assert re.search(rf"^  image +{re.escape(image('python'))}$", status, re.MULTILINE)
    assert "GPUS" not in status
    assert "holds      its place, with its results, until" in status
    assert "`echelon get demo`" in status
    refused = call("ann", "rm", "demo")
    assert refused.returncode == 115
    assert "`echelon get demo`" in refused.stderr

    words = {"COMP_WORDS": f"echelon get --namespace {namespace.namespace} d", "COMP_CWORD": "4"}
    wait_until(  # a suggestion that takes too long is left out
        lambda: "plain,demo" in call("ann", "get", _ECHELON_COMPLETE="bash_complete", **words).stdout,
        "the suggestion of the run's name",
    )

    fetched = call("ann", "get", "demo", "-o", "json")
    assert fetched.returncode == 0, fetched.stderr
    assert "holds" not in call("ann", "status", "demo").stdout
    assert call("ann", "rm", "demo").stdout == "demo\n"


def test_a_queued_run_that_no_process_looks_after(
    call: Callable[..., subprocess.CompletedProcess[str]],
    image: Callable[[str], str],
    namespace: Kubectl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when `echelon run` was killed while its run was queued: the command that it names admits it."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.setenv("LOGNAME", "ann")
    engine = KubernetesEngine(Place(namespace=namespace.namespace))
    job = Job(
        name="demo", command=("true",), framework="plain", cwd="/tmp", pod=PodOptions(image=image("python"))
    )
    engine.queue(engine.record(job, None, plan_anywhere(job)), "waiting for 1 GPU")

    def row() -> dict[str, str]:
        (found,) = json.loads(call("ann", "ps", "-o", "json").stdout)
        return dict(found)

    wait_until(lambda: row()["trouble"] == "untended", "ps to say so")
    assert "no process looks after it" in row()["reason"]
    status = call("ann", "status", "demo").stdout
    assert "waiting for 1 GPU; no process looks after it (`echelon wait demo` admits it" in status
    assert call("ann", "wait", "demo").returncode == 0
