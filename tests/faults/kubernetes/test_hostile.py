"""Bundles that mean harm, shipped through the cluster to real pods: the run fails and says why, and nothing
is written outside the folder for code. Anybody who may write ConfigMaps could send one.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import tarfile

import pytest
from tests.conftest import PATIENCE
from tests.faults.kubernetes.terminal import Terminal

from echelon.admission import plan_anywhere
from echelon.bundle import Bundle
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.pods.pod import PodOptions

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FIND = """
import os
for folder, _, files in os.walk("/"):
    if not folder.startswith(("/proc", "/sys")):
        for name in files:
            if name.startswith("evil"):
                print(os.path.join(folder, name))
"""


def member(name: str, content: bytes = b"harm", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    info.size = len(content) if info.type == tarfile.REGTYPE else 0
    return info, content


# What each would do if it were trusted; `evil...` is looked for everywhere afterwards.
HARM: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "absolute": [member("/tmp/evil-absolute")],
    "parents": [member("../output/evil-parents")],
    "parents-inside": [member("a/../../../space/output/evil-within")],
    "link": [
        member("out", type=tarfile.SYMTYPE, linkname="/echelon/space/output"),
        member("out/evil-through-link"),
    ],
    "relative-link": [
        member("out", type=tarfile.SYMTYPE, linkname="../output"),
        member("out/evil-through-relative-link"),
    ],
    "hard-link": [member("evil-passwd", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
    "device": [member("evil-device", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "fifo": [member("evil-fifo", type=tarfile.FIFOTYPE)],
}


def hostile(members: list[tuple[tarfile.TarInfo, bytes]]) -> Bundle:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for info, content in [member("script.py", b"print('ran')\n"), *members]:
            archive.addfile(info, io.BytesIO(content))
    data = gzip.compress(packed.getvalue())
    return Bundle(digest=hashlib.sha256(data).hexdigest(), data=data, files=1, size=len(data))


def start(terminal: Terminal, name: str, bundle: Bundle) -> Run:
    """As a submission does, but with a bundle that no packer of ours would make."""
    engine = KubernetesEngine()
    job = Job(
        name=name,
        script="script.py",
        framework="plain",
        cwd="{code}",
        snapshot=True,
        pod=PodOptions(image=terminal.image, linger=120.0),
        results=str(terminal.folder / "runs" / name),
    )
    ref = engine.record(job, bundle)
    engine.start(ref, plan_anywhere(job))
    return Run(ref, engine)


def test_bundles_that_mean_harm(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(terminal.kubeconfig))
    # No name is the beginning of another, by which what is left of a run is looked for.
    runs = {f"{name}-run": start(terminal, f"{name}-run", hostile(members)) for name, members in HARM.items()}
    for name, run in runs.items():
        waiting = terminal.start("wait", name, "--timeout", "2m")
        assert waiting.wait() != 0, waiting
        status = run.status()
        assert status.state == "failed", status
        assert "cannot be unpacked" in (status.reason or ""), status
        assert not list(terminal.folder.rglob("evil*"))
        assert "ran" not in terminal.call("logs", name).stdout
    for name in runs:
        terminal.check_removal(name)


def test_nothing_is_written_outside(terminal: Terminal) -> None:
    """One pod that is looked through: the agent's own unpacking, called on every hostile bundle in it."""
    terminal.write("sleeps.py", "import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    command = terminal.train("looked", "sleeps.py")
    command.wait_for("up\n")
    pod = terminal.pods("looked")[-1]["metadata"]["name"]
    program = (
        "import sys, hashlib; sys.path.insert(0, '/echelon/bundle/agent.pyz')\n"
        "from echelon.agent.setup.unpack import BadBundle, unpack\n"
        "data = sys.stdin.buffer.read()\n"
        "try:\n    unpack(data, hashlib.sha256(data).hexdigest(), '/echelon/space/' + sys.argv[1])\n"
        "except BadBundle as error:\n    print('refused:', error)\n"
    )
    for name, members in HARM.items():
        done = subprocess.run(
            [*terminal.kubectl.command(), "exec", "-i", pod, "--", "python3", "-c", program, f"code-{name}"],
            input=hostile(members).data,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(b"refused:"), (name, done.stdout)
    assert terminal.kubectl("exec", pod, "--", "python3", "-c", FIND) == ""
    stopped = terminal.call("stop", "--now", "looked")
    assert stopped.returncode == 0, stopped.stderr
    command.wait()
    terminal.check_removal("looked")
