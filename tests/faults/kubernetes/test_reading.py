"""Reading never writes: shown by the API server's audit log, for a colleague with every right to write."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE, wait_until
from tests.faults.kubernetes.terminal import Terminal

from echelon.engines.kubernetes.doctor.rights import MINIMAL_ROLE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

User = Callable[[str, Sequence[dict[str, Any]]], Kubectl]
WRITES = """
import os, pathlib, time
print("up", flush=True)
print("step=1 loss=0.5", flush=True)
while not os.path.exists("/tmp/go"):
    time.sleep(0.1)
pathlib.Path(os.environ["ECHELON_OUTPUT"], "made").write_text("by it")
print("done", flush=True)
"""
READS = {"get", "list", "watch"}


def changes(entries: list[dict[str, Any]], user: str) -> list[str]:
    """What a user asked for beyond reading; reviews of one's own rights change nothing."""
    found = []
    for entry in entries:
        about = entry.get("objectRef") or {}
        if not entry["user"]["username"].endswith(user) or about.get("resource", "").startswith("self"):
            continue
        part = about.get("subresource", "")
        if entry["verb"] not in READS or part in ("exec", "attach", "portforward"):
            found.append(f"{entry['verb']} {about.get('resource')}/{about.get('name')} {part}")
    return found


def ask(origin: str, token: str, path: str) -> Any:
    """What the dashboard tells a script."""
    asked = urllib.request.Request(f"{origin}/api/{path}", headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        return json.load(answer)


def test_a_colleague_who_looks_changes_nothing(
    terminal: Terminal, user: User, audit: Callable[[], list[dict[str, Any]]], tmp_path: Path
) -> None:
    terminal.write("writes.py", WRITES)
    bob = terminal.on_another_machine(user("bob", MINIMAL_ROLE), tmp_path / "colleague")
    started = terminal.call(
        "run", "-d", "--linger", "3m", "-n", "2", "--name", "long", "--image", terminal.image, "writes.py"
    )
    assert started.returncode == 0, started.stderr
    hopeless = terminal.call(
        "run", "-d", "--linger", "1m", "--name", "no-image", "--image", "a/b:1", "writes.py"
    )
    assert hopeless.returncode == 0, hopeless.stderr

    follower, waiting = bob.start("logs", "-f", "long"), bob.start("wait", "long")
    events = bob.start("events", "long", "-f", "-o", "json")
    follower.wait_for("up\n", 2)
    events.wait_for('"value":0.5', 2)
    assert "loss" in bob.call("metrics", "long").stdout
    assert bob.status("long")["state"] == "running"
    assert "long" in bob.call("ps", "-A").stdout
    dashboard = bob.start("ui", "--no-browser")
    dashboard.wait_for("#token=")
    origin, _, token = dashboard.lines[0].partition("/#token=")
    look = partial(ask, origin, token)
    assert "long" in [run["name"] for run in look("runs")]
    assert look("runs/long")["status"]["state"] == "running"
    wait_until(lambda: len(look("runs/long/logs?search=up")["lines"]) == 2, "both ranks' lines on the page")
    wait_until(lambda: look("runs/long/metrics"), "the curve on the page")
    assert look("cluster")["usage"]["runs"]
    assert look("runs/long/results")["files"] == []
    assert look("runs/long/events")
    assert bob.call("top", "--once").returncode == 0
    assert bob.call("wait", "no-image", "--timeout", "10s").returncode == 118, "it is not bob's to give up"
    for pod in terminal.pods("long"):
        terminal.kubectl("exec", pod["metadata"]["name"], "--", "touch", "/tmp/go")
    assert follower.wait() == 0, follower
    assert waiting.wait() == 0, waiting
    assert events.wait() == 0, events
    assert bob.status("long")["state"] == "succeeded"
    wait_until(lambda: look("runs/long/logs")["complete"], "the page to know the end")
    assert look("runs/long")["status"]["state"] == "succeeded"
    dashboard.process.send_signal(signal.SIGINT)
    assert dashboard.wait() == 130, dashboard
    assert not (bob.folder / "runs").exists(), "the only copy of the results is not moved"
    assert changes(audit(), f":{terminal.kubectl.namespace}:bob") == []

    assert terminal.call("wait", "long").returncode == 0
    assert terminal.read("long", "made") == "by it"


def test_a_colleague_takes_over_when_asked_to(terminal: Terminal, user: User, tmp_path: Path) -> None:
    terminal.write("hello.py", "import os; open(os.environ['ECHELON_OUTPUT'] + '/made', 'w').write('by it')")
    bob = terminal.on_another_machine(user("bob", MINIMAL_ROLE), tmp_path / "colleague")
    started = terminal.call(
        "run", "-d", "--linger", "3m", "--name", "left", "--image", terminal.image, "hello.py"
    )
    assert started.returncode == 0, started.stderr
    waited = bob.call("wait", "left", "--take-over")
    assert waited.returncode == 0, waited.stderr
    assert bob.read("left", "made") == "by it"
