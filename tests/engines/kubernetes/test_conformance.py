"""The engine conformance suite, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.engines.conformance.line import LineConformance
from tests.engines.conformance.lives import LifeConformance
from tests.engines.conformance.records import RecordConformance
from tests.engines.conformance.results import ResultConformance
from tests.engines.conformance.sampling import SamplingConformance
from tests.engines.programs import ASK, LAST, SCRIPTS

from echelon.engines.kubernetes.client.place import Place
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.model.job import Job
from echelon.model.pods.pod import Mount, PodOptions

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


# The agent is the first process of its pod, which nobody in there can hold up for a moment. So rank 2, which
# dies of rank 1's failure, is heard of first, and the cause while it is waited for.
IN_PODS = {
    "falls-apart.py": (
        "from pathlib import Path\n"
        "written = Path(os.environ['ECHELON_OUTPUT'], 'rank-2')\n"
        "if rank == 0:\n    " + LAST + "if rank == 1:\n"
        "    while not written.exists() or not written.read_text(): time.sleep(0.01)\n"
        "    while Path('/proc', written.read_text()).exists(): time.sleep(0.01)\n"
        "    raise ValueError('bad luck')\n"
        "written.write_text(str(os.getpid()))\n"
        "raise ConnectionResetError(104, 'Connection reset by peer')\n"
    )
}


class KubernetesHarness:
    """Real pods, in a namespace of the test's own; the programs lie in a ConfigMap."""

    names_devices = False  # the kubelet hands them out

    def __init__(self, namespace: Kubectl, image: str, give_gpus: Callable[[int], None]) -> None:
        self.engine = KubernetesEngine(Place(namespace=namespace.namespace))
        self._image = image
        self.provide_gpus = give_gpus
        namespace.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "programs"},
                "data": {name: ASK + text for name, text in (SCRIPTS | IN_PODS).items()},
            }
        )

    def job(self, program: str, *, name: str = "the-run", **more: Any) -> Job:
        programs = Mount(kind="configmap", source="programs", path="/programs")
        return Job(
            name=name,
            script=f"/programs/{program}",
            python="python3",
            framework="plain",
            cwd="/tmp",
            pod=PodOptions(image=self._image, mounts=(programs,)),
            **more,
        )

    def read_result(self, results: str, path: str) -> bytes:
        return (Path(results) / path).read_bytes()


@pytest.fixture
def place(
    namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: Callable[[str], str]
) -> Callable[[Callable[[int], None]], KubernetesHarness]:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.chdir(tmp_path)
    return lambda give: KubernetesHarness(namespace, image("python"), give)


class TestKubernetes(RecordConformance, LifeConformance, ResultConformance, SamplingConformance):
    @pytest.fixture
    def harness(self, place: Callable[..., KubernetesHarness]) -> KubernetesHarness:
        return place(lambda _count: pytest.fail("GPUs are for the tests of the line"))


class TestKubernetesLine(LineConformance):
    @pytest.fixture
    def harness(
        self,
        place: Callable[..., KubernetesHarness],
        give_gpus: Callable[..., None],
        real_nodes: list[str],
    ) -> KubernetesHarness:
        return place(lambda count: give_gpus(real_nodes[0], count))
