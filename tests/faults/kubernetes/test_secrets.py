"""A user's secret, and the run's own, are in the Secret and in the ranks' environment, and nowhere else."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CANARY = "c4n4ry-of-the-test/+"
SCRIPT = """
import hashlib, os, time
print("knows", hashlib.sha256(os.environ["HF_TOKEN"].encode()).hexdigest(), flush=True)
while not os.path.exists(os.environ["ECHELON_OUTPUT"] + "/go"):
    time.sleep(0.05)
"""
COMMAND_LINES = (
    "import glob\n"
    "for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
    "    try: print(open(path).read().replace(chr(0), ' '))\n"
    "    except OSError: pass\n"
)


def test_a_secret_is_nowhere_to_be_read(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, audit: Callable[[], list[dict[str, Any]]]
) -> None:
    import hashlib

    monkeypatch.setenv("HF_TOKEN", CANARY)
    terminal.write("script.py", SCRIPT)
    words = ("--secret", "HF_TOKEN", "-n", "2", "script.py")
    dry = terminal.call(
        "run", "--dry-run", "-o", "yaml", "--name", "quiet", "--image", terminal.image, *words
    )
    assert dry.returncode == 0, dry.stderr
    command = terminal.train("quiet", *words)
    command.wait_for("knows", 2)
    secret = terminal.kubectl.get("secret", "quiet")
    kept = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert kept["HF_TOKEN"] == CANARY
    pods = [pod["metadata"]["name"] for pod in terminal.pods("quiet")]

    seen = {
        "the dry run": dry.stdout + dry.stderr,
        "objects": terminal.kubectl(
            "get", "configmaps,jobs,pods,services,events", "-o", "yaml", "--show-managed-fields"
        ),
        "the client's command line": Path(f"/proc/{command.process.pid}/cmdline").read_text(),
        "status": json.dumps(terminal.status("quiet")) + terminal.call("ps", "-o", "yaml").stdout,
    }
    for pod in pods:
        seen[f"command lines in {pod}"] = terminal.kubectl("exec", pod, "--", "python3", "-c", COMMAND_LINES)
        assert "script.py" in seen[f"command lines in {pod}"]
        terminal.kubectl("exec", pod, "--", "touch", "/echelon/space/output/go")
    assert command.wait() == 0, command
    assert command.lines.count(f"[0] knows {hashlib.sha256(CANARY.encode()).hexdigest()}") == 1
    seen["output"] = str(command) + terminal.call("logs", "quiet", "-o", "json").stdout
    for pod in pods:
        seen[f"the log of {pod}"] = terminal.kubectl("logs", pod)
    seen["events at the end"] = terminal.kubectl("get", "events", "-o", "yaml")
    seen["requests"] = json.dumps([entry for entry in audit() if terminal.kubectl.namespace in str(entry)])
    for path in (terminal.folder / "runs").rglob("*"):
        if path.is_file():
            seen[f"result {path.name}"] = path.read_text(errors="replace")

    for key, value in kept.items():
        for form in (value, base64.b64encode(value.encode()).decode(), json.dumps(value)[1:-1]):
            for where, text in seen.items():
                assert form not in text, f"{key} is in {where}"
    terminal.check_removal("quiet")
