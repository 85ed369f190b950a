"""Agents that serve a rendezvous: all ranks reach it, every generation has its own, and none is left."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE

WIRING = {
    "STORE": "http://{address:0}:{port:0}/{rendezvous}:{port:0}",  # as Horovod puts it together
    "IFACE": "{interface}",
    "RANK": "{rank}",
}
# The first time, rank 1 fails when it has met rank 0; the second time, it finds nothing of that.
SCRIPT = """
import json, os, sys, time, urllib.error, urllib.request

def ask(method, key, value=None):
    url = os.environ["STORE"] + "/global/" + key
    try:
        with urllib.request.urlopen(urllib.request.Request(url, value, method=method)) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        assert error.code == 404, error.code
        return None

rank, restart = int(os.environ["RANK"]), os.environ["ECHELON_RESTART"]
old = ask("GET", "old") if restart == "1" else None
ask("PUT", str(rank), b"hello of %d" % rank)
if restart == "0":
    ask("PUT", "old", b"the first generation's")
heard = None
while heard is None:
    heard = ask("GET", str(1 - rank))
with open(os.environ["ECHELON_OUTPUT"] + "/%d-%s" % (rank, restart), "w") as file:
    json.dump([heard, old, os.environ["STORE"], os.environ["IFACE"]], file)
while not os.path.exists(os.environ["ECHELON_OUTPUT"] + "/%d-%s" % (1 - rank, restart)):
    time.sleep(0.02)
sys.exit(3 if rank == 1 and restart == "0" else 0)
"""


def test_every_generation_has_its_own(agents: Agents, write_script: Callable[[str], str]) -> None:
    agents.describe(sys.executable, write_script(SCRIPT), workers=2, restarts=1)
    agents.task["groups"][0]["launch"].update(wiring=WIRING, ports="first")
    agents.describe_again()
    out = Path(agents.task["output"])
    out.mkdir()
    for worker in range(2):
        agents.start(worker)
    assert [agents.processes[worker].wait(PATIENCE) for worker in (1, 0)] == [0, 0]
    assert agents.verdict()["outcome"] == "succeeded"
    stores = set()
    for restart in (0, 1):
        told = [json.loads((out / f"{rank}-{restart}").read_text()) for rank in range(2)]
        assert [(heard, old) for heard, old, *_ in told] == [("hello of 1", None), ("hello of 0", None)]
        (store,) = {each[2] for each in told}
        stores.add(store)
        assert {each[3] for each in told} <= {"lo", "lo0"}
    assert len({store.rpartition("/")[2].partition(":")[0] for store in stores}) == 2
    for store in stores:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(store.rpartition(":")[2])))


def test_a_pod_without_an_ipv4_address_is_told_why(
    agents: Agents, write_script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHELON_POD_IP", "2001:db8::1")
    agents.describe(sys.executable, write_script(SCRIPT))
    agents.task["groups"][0]["launch"].update(wiring=WIRING, ports="first")
    agents.describe_again()
    agents.start(0).wait(PATIENCE)
    verdict = agents.verdict()
    assert verdict["outcome"] == "failed"
    assert "cannot serve the rendezvous of its ranks at 2001:db8::1" in verdict["cause"]["summary"]
    assert "Horovod speaks IPv4 only" in verdict["cause"]["summary"]
