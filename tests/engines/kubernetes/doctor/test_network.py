"""What two pods exchange: the script itself, as two processes here, and what its reports mean."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import pytest
from tests.conftest import PATIENCE

from echelon.engines.kubernetes.doctor.network import SCRIPT, judge

NODES = ["a", "b"]
WELL: dict[str, Any] = {"gloo": "eth0", "nccl": "eth0", "torch": None, "error": None, "seconds": 0.01}


@pytest.mark.parametrize("flags", [("-I", "-S"), ()])  # without the site's packages there is no PyTorch
def test_the_script(flags: tuple[str, ...]) -> None:
    leader = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)[0][4][0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [[sys.executable, *flags, "-c", SCRIPT, str(rank), str(leader), str(port)] for rank in range(2)]
    started = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in words]
    said = [json.loads(each.communicate(timeout=PATIENCE)[0].splitlines()[-1]) for each in started]
    assert [each["error"] for each in said] == [None, None]
    assert all((each["torch"] is None) == bool(flags) for each in said)
    assert judge(said, NODES).level == "ok"
    assert said[0]["gloo"] in said[0]["cards"]


@pytest.mark.parametrize(
    ("said", "nodes", "level", "words"),
    [
        ([WELL, WELL], NODES, "ok", ("pods on a and b exchange 8 MiB", "no PyTorch", "NCCL eth0")),
        ([WELL, {**WELL, "torch": "2.6"}], NODES, "ok", ("Gloo of PyTorch 2.6",)),
        ([WELL, WELL], ["a", "a"], "degraded", ("both were on one",)),
        (
            [{**WELL, "error": "TimeoutError: x"}, {**WELL, "error": "OSError: refused"}],
            NODES,
            "missing",
            ("OSError: refused", "NetworkPolicy"),
        ),
        ([{**WELL, "gloo": "lo", "error": "x"}, WELL], NODES, "missing", ("GLOO_SOCKET_IFNAME=eth0",)),
        ([{}, {}], NODES, "missing", ("they left no report",)),
    ],
)
def test_what_the_reports_mean(
    said: list[dict[str, Any]], nodes: list[str], level: str, words: tuple[str, ...]
) -> None:
    found = judge(list(said), nodes)
    assert found.level == level
    for each in words:
        assert each in f"{found.found} {found.fix}"
