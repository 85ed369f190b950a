"""Workers of a distributed step in pods: what can be seen without a cluster."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from echelon.notebook.beside.jobs import fill, wait_for_all, waits_for


def start(text: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", text])


def test_placeholders_are_replaced_wherever_they_stand() -> None:
    template = {"name": "{job}", "hosts": ["{job}-0.{job}", 1], "more": {"claim": "{claim}", "n": None}}
    assert fill(template, {"{job}": "a", "{claim}": "b"}) == {
        "name": "a",
        "hosts": ["a-0.a", 1],
        "more": {"claim": "b", "n": None},
    }


def test_when_one_process_fails_the_others_end() -> None:
    forever = start("import time\nwhile True: time.sleep(1)")
    assert wait_for_all([start("raise SystemExit(3)"), forever]) == 3
    assert forever.poll() is not None


def test_all_succeed_or_one_is_killed() -> None:
    assert wait_for_all([start(""), start("")]) == 0
    assert wait_for_all([start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), start("")]) == 137


NO_ROOM = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
NOT_READY = {"type": "Ready", "status": "False", "message": "containers with unready status: [step]"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, ""),
        ({"conditions": [NO_ROOM]}, "0/2 nodes are available"),
        ({"conditions": [NOT_READY]}, ""),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no x:1"}}}
                ]
            },
            "ImagePullBackOff no x:1",
        ),
    ],
)
def test_what_a_pod_waits_for_is_told_unless_it_is_just_starting(status: Any, reason: str) -> None:
    assert waits_for({"status": status}) == reason
