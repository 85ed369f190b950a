"""Requests to a cluster through kubectl: the testbed's own program for its own cluster, or any other.

The only file that builds kubectl commands; its callers pass and receive objects. Simple
requests need no process: `testbed/direct.py` makes them.
"""

from __future__ import annotations

import http
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.errors import EchelonError
from testbed import direct, programs, versions
from testbed.patience import FACTOR, pause_after

Object = dict[str, Any]


class Refused(EchelonError):
    """The API server or kubectl refused; the message is theirs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kubectl:
    """Calls as one user, in one namespace."""

    kubeconfig: Path
    namespace: str = ""

    def __call__(self, *words: str, stdin: str | None = None, patience: float = 120.0) -> str:
        """Run kubectl and return its output; raises Refused with its error output. The patience is scaled."""
        done = subprocess.run(
            [*self.command(), *words],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience * FACTOR,
            check=False,
            env=_environment(),
        )
        if done.returncode:
            raise Refused(f"kubectl {' '.join(words)}: {done.stderr.strip()}", hint="")
        return done.stdout

    def command(self) -> list[str]:
        """The beginning of every call, for a test that starts the process itself."""
        chosen = ["--namespace", self.namespace] if self.namespace else []
        return [*_program(), "--kubeconfig", str(self.kubeconfig), *chosen]

    def within(self, namespace: str) -> Kubectl:
        """The same user in another namespace."""
        return Kubectl(kubeconfig=self.kubeconfig, namespace=namespace)

    def get(self, *words: str) -> Object:
        """One object, or a list of them."""
        try:
            answer = self._read(words)
        except direct.Unanswered as error:
            raise Refused(f"kubectl get {' '.join(words)}: {error}", hint="") from error
        return answer or dict(json.loads(self("get", *words, "-o", "json")))

    def find(self, *words: str) -> Object | None:
        """One object, or None if it does not exist."""
        try:
            if answer := self._read(words):
                return answer
        except direct.Unanswered as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise Refused(f"kubectl get {' '.join(words)}: {error}", hint="") from error
        output = self("get", *words, "-o", "json", "--ignore-not-found")
        return json.loads(output) if output.strip() else None

    def items(self, *words: str) -> list[Object]:
        """The objects of a list."""
        found: list[Object] = self.get(*words)["items"]
        return found

    def _read(self, words: Sequence[str]) -> Object | None:
        """The answer without kubectl; None where it takes kubectl."""
        question, who = direct.understand(words), direct.login(self.kubeconfig)
        return direct.answer(question, who, self.namespace) if question and who else None

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create objects, or change them to what is given."""
        self("apply", "-f", "-", stdin=_listed(objects))

    def create(self, *objects: Mapping[str, Any]) -> None:
        """Create objects; an existing one is refused."""
        who = direct.login(self.kubeconfig)
        kinds = [direct.understand_object(item) for item in objects]
        if who is None or None in kinds:
            self("create", "-f", "-", stdin=_listed(objects))
            return
        for item, kind in zip(objects, kinds, strict=True):
            assert kind
            try:
                direct.create(item, kind, who, self.namespace)
            except direct.Unanswered as error:
                raise Refused(f"kubectl create: {error}", hint="") from error

    def delete_namespace(self) -> None:
        """Delete the namespace, and do not wait for it."""
        who = direct.login(self.kubeconfig)
        # Jobs first: a Job that replaces its pods would delay the namespace's deletion.
        for words in (("jobs",), ("namespace", self.namespace)):
            question = direct.understand(words)
            try:
                if who and question:
                    direct.delete(question, who, self.namespace)
                else:
                    self("delete", *words, *(["--all"] if len(words) == 1 else []), "--wait=false")
            except direct.Unanswered as error:
                raise Refused(f"kubectl delete {' '.join(words)}: {error}", hint="") from error

    def patch(
        self, what: str, name: str, change: object, *, kind: str = "merge", subresource: str = ""
    ) -> None:
        """Change one object by a merge, JSON or strategic patch."""
        more = [f"--subresource={subresource}"] if subresource else []
        self("patch", what, name, f"--type={kind}", "--patch", json.dumps(change), *more)

    def wait_for(self, condition: Callable[[], object], what: str, patience: float = 120.0) -> None:
        """Wait until a condition holds; raises Refused with `what` after `patience` seconds."""
        patience *= FACTOR
        deadline = time.monotonic() + patience
        while True:
            began = time.monotonic()
            if condition():
                return
            if time.monotonic() > deadline:
                raise Refused(f"waited {patience:g} s in vain for {what}", hint="")
            time.sleep(pause_after(time.monotonic() - began, least=0.1))


def _program() -> list[str]:
    # For an existing cluster, no test should have to build Kubernetes first.
    installed = shutil.which("kubectl")
    if installed and not programs.is_built(versions.current()):
        return [installed]
    return [str(programs.program(versions.current())), "kubectl"]


def _listed(objects: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _environment() -> dict[str, str]:
    # A developer's own kubeconfig must not be used.
    return {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
