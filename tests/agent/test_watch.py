"""The first process of a container, in a real namespace of process ids: it watches over the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.pods import UP, Pods
from tests.conftest import wait_until

from echelon.agent import watch
from echelon.agent.task import INTERRUPTED, RUN_OVER

OWN_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture
def start(pods: Pods) -> Callable[[], None]:
    """Start worker 0 as the first process of a namespace."""
    try:
        subprocess.run([*OWN_NAMESPACE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to make a namespace of process ids")

    def start() -> None:
        pods.start(0, before=OWN_NAMESPACE)

    return start


def child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text().split(), f"a child of {pid}")
    return int(children.read_text().split()[0])


@pytest.mark.parametrize(("end", "code"), [("", 0), ("raise SystemExit(3)", RUN_OVER)])
def test_the_agents_exit_code_is_the_containers(
    pods: Pods, start: Callable[[], None], end: str, code: int
) -> None:
    pods.script(f"import os\nprint('parents', os.getppid() > 1)\n{end}")
    start()
    assert pods.code(0) == code
    assert pods.said(0)[0] == "parents True"


def test_sigterm_reaches_the_agent(pods: Pods, start: Callable[[], None]) -> None:
    pods.script(
        "import signal\n"
        "def save(*_):\n    print('saved', flush=True)\n    raise SystemExit\n"
        "signal.signal(signal.SIGTERM, save)\n" + UP,
        restarts=1,
    )
    start()
    pods.wait_up(0)
    os.kill(child_of(pods.processes[0].pid), signal.SIGTERM)
    assert pods.code(0) == INTERRUPTED
    assert pods.said(0) == ["up", "saved"]


@pytest.mark.slow
def test_an_agent_that_is_stopped_is_lost_and_its_ranks_with_it(
    pods: Pods, start: Callable[[], None]
) -> None:
    pods.script("import os\n" + UP)
    start()
    pods.wait_up(0)
    agent = child_of(child_of(pods.processes[0].pid))
    rank = child_of(agent)
    os.kill(agent, signal.SIGSTOP)
    assert pods.code(0) == 128 + signal.SIGKILL
    assert pods.last_words()["reason"] == f"it did not respond for {watch.LOST_AFTER:g} s"
    wait_until(lambda: not Path(f"/proc/{rank}").exists(), "the rank to end")


@pytest.mark.slow
def test_a_container_that_is_stopped_as_a_whole_loses_no_agent(pods: Pods, start: Callable[[], None]) -> None:
    go = pods.folder / "go"
    pods.script(
        "import os, time\nprint('up', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
        "print('well', flush=True)"
    )
    start()
    pods.wait_up(0)
    first = child_of(pods.processes[0].pid)
    both = (first, child_of(first))
    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(watch.LOST_AFTER + 3)
    for pid in both:
        os.kill(pid, signal.SIGCONT)
    go.touch()
    assert pods.code(0) == 0
    assert pods.said(0) == ["up", "well"]
