"""Many gangs and few GPUs, with foreground commands only, a third of which are killed at any moment."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE
from tests.engines.kubernetes.real import access_of
from tests.faults.kubernetes.gangs import Kubelet, add_nodes

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.place import Place
from echelon.engines.kubernetes.engine import KubernetesEngine

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
AT_ONCE = 6
SHAPES = ((2, 3), (3, 2), (2, 1), (1, 4), (4, 1))  # workers, and the GPUs of each; two nodes have four


@pytest.fixture
def nodes(own_cluster: Target, fake_nodes: object) -> list[str]:
    """They are removed with all fake nodes."""
    assert fake_nodes is not None
    return add_nodes(own_cluster.kubectl, 2)


def command(namespace: Kubectl, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "ECHELON_HOME": str(folder / "state")}
    with (folder / f"{words[0]}.err").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.kubernetes.gangs", str(namespace.namespace), *words],
            env=environment,
            cwd=Path(__file__).parents[3],
            stdout=errors,
            stderr=errors,
        )


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.soak)])
def test_no_gang_is_lost_admitted_twice_or_left_partly_bound(
    namespace: Kubectl, nodes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    chance = random.Random(count)
    shapes = {f"gang-{number:03}": chance.choice(SHAPES) for number in range(count)}
    doomed = {name: chance.uniform(0.05, 4.0) for name in chance.sample(sorted(shapes), count // 3)}
    todo = list(shapes)
    going: dict[str, subprocess.Popen[bytes]] = {}
    begun: dict[str, float] = {}
    deadline = time.monotonic() + PATIENCE * (4 + count / 10)
    with Kubelet(
        Api(access_of(namespace)), nodes, {name: each[0] for name, each in shapes.items()}
    ) as kubelet:
        while todo or going:
            assert time.monotonic() < deadline, (todo, list(going), kubelet.stories, kubelet.troubles[-3:])
            while todo and len(going) < AT_ONCE:
                name = todo.pop(0)
                going[name] = command(namespace, tmp_path, name, *map(str, shapes[name]))
            time.sleep(0.1)
            for name, process in list(going.items()):
                said = (tmp_path / f"{name}.err").read_text()
                if said:
                    begun.setdefault(name, time.monotonic())
                over = process.poll() is not None
                if not over and name in doomed and time.monotonic() - begun.get(name, 1e12) > doomed[name]:
                    process.kill()
                    process.wait()
                    del doomed[name], going[name]
                    todo.append(name)  # its user notices, and repeats it
                elif over:
                    assert process.returncode == 0, said[-2000:]
                    del going[name]
        stories = kubelet.stories
    states = {row.name: row.state for row in KubernetesEngine(Place(namespace=namespace.namespace)).runs()}
    assert states == dict.fromkeys(shapes, "succeeded")
    assert {name: story.twice for name, story in stories.items() if story.twice} == {}
    assert {name for name, story in stories.items() if story.starts != story.stops + 1} == set()
    assert {name for name, story in stories.items() if not story.whole} == set()
    longest = max(story.partly_longest for story in stories.values())
    assert longest < PATIENCE, "a gang that was not whole kept what it had"
