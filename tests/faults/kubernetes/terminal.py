"""Somebody at a terminal with a kubeconfig: what these tests do a user does, with the command line as a real
process, and what they see is what the user sees.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import yaml
from testbed.kubectl import Kubectl
from testbed.patience import FACTOR
from tests.conftest import wait_until

from echelon.engines.kubernetes import names
from echelon.errors import Unreachable

# All that a run may leave in a namespace; claims too, since those that it made are its own.
KINDS = "jobs,pods,configmaps,secrets,services,persistentvolumeclaims"
PATIENCE = 180.0  # seconds, on a quiet machine; scaled where it is used
LOOKING = frozenset({"status", "ps", "logs", "top"})  # commands that change nothing


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Command:
    """`echelon` at work, and what it has printed so far."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    @property
    def lines(self) -> list[str]:
        """Standard output, line by line."""
        return self.out.read_text().splitlines()

    @property
    def said(self) -> str:
        """Standard error."""
        return self.err.read_text()

    def wait_for(self, text: str, count: int = 1) -> None:
        """Wait until something was printed so often; a process that ends before is told with its words."""

        def printed() -> bool:
            over = self.process.poll() is not None
            found = self.out.read_text().count(text) + self.err.read_text().count(text)
            if found < count and over:
                pytest.fail(
                    f"ended with {self.process.returncode} before it said {text!r} {count} times: {self}"
                )
            return found >= count

        wait_until(printed, f"{text!r} ({count} times)", PATIENCE)

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code."""
        return self.process.wait(patience * FACTOR)

    def __repr__(self) -> str:
        return f"{self.out.read_text()[-3000:]}\n{self.said[-3000:]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminal:
    """A folder to work in, a kubeconfig whose namespace is the test's, an image on the nodes; `kubectl` is
    the administrator's.
    """

    folder: Path
    kubeconfig: Path
    kubectl: Kubectl
    image: str
    state: Path | None = None  # the machine's own state folder; the test's, unless it is another machine
    started: list[Command] = field(default_factory=list)

    def call(self, *words: str, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Call `echelon` and wait for its end.

        A command that only looks is called again while the API server does not answer it: a new process gives
        a server that it has never heard of a few seconds, and an API server on a busy machine may take
        longer. That is the machine's load, not the subject; no test here looks while the server is away."""
        deadline = time.monotonic() + patience * FACTOR
        while True:
            done = subprocess.run(
                _command(words),
                cwd=self.folder,
                env=self.environment(),
                capture_output=True,
                text=True,
                timeout=patience * FACTOR,
                check=False,
            )
            unheard = words[0] in LOOKING and done.returncode == Unreachable.exit_code
            if not unheard or time.monotonic() > deadline:
                return done

    def start(
        self,
        *words: str,
        reader: BinaryIO | None = None,
        program: tuple[str, str] = ("-m", "echelon.cli.main"),
    ) -> Command:
        """Call `echelon`, and go on meanwhile; its output goes to a file, or to a `reader`. Another `program`
        may change a time first.
        """
        number = len(list(self.folder.parent.glob("out-*")))
        out, err = (self.folder.parent / f"{name}-{number}" for name in ("out", "err"))
        out.touch()
        with reader or out.open("wb") as standard, err.open("wb") as words_about_it:
            process = subprocess.Popen(
                [sys.executable, *program, *words],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=standard,
                stderr=words_about_it,
            )
        command = Command(process=process, out=out, err=err)
        self.started.append(command)
        return command

    def train(self, name: str, *words: str, reader: BinaryIO | None = None) -> Command:
        """`echelon run` in the foreground."""
        return self.start("run", "--name", name, "--image", self.image, *words, reader=reader)

    def leave(self) -> None:
        """End what a test that failed has left."""
        for command in self.started:
            command.process.kill()
            command.wait()

    def write(self, name: str, text: str) -> None:
        """A file in the folder."""
        (self.folder / name).write_text(text)

    def read(self, run: str, path: str) -> str:
        """A file of a run's results at home."""
        return (self.folder / "runs" / run / path).read_text()

    def status(self, run: str) -> dict[str, Any]:
        """`echelon status`, as data."""
        done = self.call("status", run, "-o", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def pods(self, run: str) -> list[dict[str, Any]]:
        """The pods of a run's workers, the oldest first."""
        chosen = f"echelon.dev/run={run},app.kubernetes.io/component=worker"
        found = self.kubectl.items("pods", "-l", chosen)
        return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])

    def left_of(self, run: str) -> list[str]:
        """Every object of a run that is still there."""
        found = (item["metadata"] | {"kind": item["kind"].lower()} for item in self.kubectl.items(KINDS))
        return sorted(
            f"{about['kind']}/{about['name']}"
            for about in found
            # By their names too: a label may be what went wrong.
            if about.get("labels", {}).get("echelon.dev/run") == run or about["name"].startswith(run)
        )

    def check_removal(self, run: str) -> None:
        """`rm` works, and leaves nothing."""
        done = self.call("rm", run)
        assert done.returncode == 0, done.stderr
        self.wait_for_nothing(run)

    def wait_for_nothing(self, run: str, patience: float = 90.0) -> None:
        """Kubernetes removes what belongs to what is gone, in its own time."""
        wait_until(lambda: not self.left_of(run), f"nothing of {run} to be left", patience)

    def raise_flag(self, pod: str, flag: str) -> None:
        """Let a script in a pod go on that waits for `flag_path(flag)`: no sleep has to be long enough. The
        user of the container may write there, whoever it is.
        """
        self.kubectl("exec", pod, "--", "touch", flag_path(flag))

    def as_user(self, kubectl: Kubectl) -> Terminal:
        """The same folder, under somebody else's kubeconfig."""
        return replace(self, kubeconfig=kubectl.kubeconfig)

    def on_another_machine(self, kubectl: Kubectl, folder: Path) -> Terminal:
        """A colleague with a kubeconfig, a folder and a state folder of their own."""
        folder.mkdir()
        return replace(
            self, kubeconfig=kubectl.kubeconfig, folder=folder, state=folder.with_name("colleague-state")
        )

    def environment(self) -> dict[str, str]:
        """The environment of every command."""
        state = {} if self.state is None else {"ECHELON_HOME": str(self.state)}
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "ECHELON_ON": "k8s", **state}


@pytest.fixture
def terminal(
    home: Path, namespace: Kubectl, image: Callable[[str], str], tmp_path: Path
) -> Iterator[Terminal]:
    """Somebody who may do everything, in a fresh namespace, with an image that has only Python."""
    assert home is not None
    folder = tmp_path / "work"
    (folder / "pyproject.toml").write_text("[project]\nname = 'work'\n")
    somebody = Terminal(
        folder=folder,
        kubeconfig=kubeconfig_in(namespace, tmp_path / "kubeconfig"),
        kubectl=namespace,
        image=image("python"),
    )
    yield somebody
    somebody.leave()


def kubeconfig_in(kubectl: Kubectl, path: Path, server: str = "") -> Path:
    """The administrator's kubeconfig with the test's namespace, and another server if one is named."""
    view = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    view["contexts"][0]["context"]["namespace"] = kubectl.namespace
    if server:
        view["clusters"][0]["cluster"] = {"server": server}
        view["users"][0]["user"] = {}
    path.write_text(yaml.safe_dump(view))
    return path


def flag_path(flag: str) -> str:
    """Where a script in a pod waits for what `Terminal.raise_flag` makes."""
    return f"{names.SPACE}/{flag}"


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "echelon.cli.main", *words]
