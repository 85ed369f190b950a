"""A hint that is a command can be pasted into a shell, whatever the user's words have in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echelon.cli.options import place_of
from echelon.engines.kubernetes.client.http.refusals import Request, refusal, role_commands
from echelon.engines.kubernetes.client.kinds import KINDS
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.diagnose.starting import _created
from echelon.engines.kubernetes.prerequisites.namespace import objects_named
from echelon.errors import InvalidJob
from echelon.image.registry.transport import log_in
from echelon.kubeflow.here import parse_maps
from echelon.model.meaning import to_job
from echelon.model.settings import Settings
from echelon.preparation.programs import check_script
from echelon.preparation.shipping import notes_on_paths

BAD, QUOTED = "a;touch x", "'a;touch x'"


def test_a_namespace() -> None:
    said = b'{"kind": "Status", "reason": "NotFound", "message": "namespaces \\"a;touch x\\" not found"}'
    request = Request(verb="create", kind=KINDS["Pod"], namespace=BAD)
    error = refusal(404, said, request, Access(server="https://a", context="", cluster="", user=""))
    assert f"`kubectl create namespace {QUOTED}`" in error.hint
    commands = role_commands("it's ann", "get", request)
    assert f"kubectl -n {QUOTED} create role " in commands
    assert commands.endswith("""--user='it'"'"'s ann'""")


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("a;b.ipynb", "{}", "`echelon notebook run 'a;b.ipynb'`"),
        ("a b.yaml", "", "-f 'a b.yaml'"),
        ("a;b", "#!/bin/sh\n", "`echelon run -- /bin/sh 'a;b'`"),
        ("plain.ipynb", "{}", "`echelon notebook run plain.ipynb`"),
    ],
)
def test_a_script(tmp_path: Path, name: str, content: str, hint: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidJob) as refused:
        check_script(Path(name), tmp_path)
    assert hint in refused.value.hint


def test_an_executable_script(tmp_path: Path) -> None:
    (tmp_path / "a;b").write_text("#!/bin/sh\n")
    (tmp_path / "a;b").chmod(0o755)
    with pytest.raises(InvalidJob) as refused:
        check_script(Path("a;b"), tmp_path)
    assert "`echelon run -- './a;b'`" in refused.value.hint
    assert os.access(tmp_path / "a;b", os.X_OK)


def test_paths_registries_and_objects(tmp_path: Path) -> None:
    job = to_job(Settings(script="t.py", args=["--save-dir", "/tmp/a;b"]), name="fm")
    (note,) = notes_on_paths(job)
    assert note.endswith("--collect '/tmp/a;b'")
    assert f"docker login {QUOTED}" in log_in(BAD)
    assert _created("secret", BAD) == f"secret generic {QUOTED} ..."
    with pytest.raises(InvalidJob) as refused:
        parse_maps([f"/data={BAD}"], tmp_path)
    assert refused.value.hint == f"mkdir -p {QUOTED}"
    (secret,) = objects_named(to_job(Settings(script="t.py", pull_secret=["mine"]), name="fm"))
    assert "docker-registry mine ..." in secret.hint


def test_a_place() -> None:
    assert place_of({"on": "k8s", "context": "big one", "namespace": None}) == " --on k8s --context 'big one'"
