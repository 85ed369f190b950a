"""Mistakes in a manifest: one line each, with the place in the document."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.kubeflow import Manifest, read_manifest

Read = Callable[[str], Manifest]
GOOD = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: mnist
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: my/torch:2
              command: [python, train.py]
              args: ["--epochs=3"]
"""
MASTER = "spec.pytorchReplicaSpecs.Master"
POD = f"{MASTER}.template.spec"


def test_the_good_one_is_read(read: Read) -> None:
    assert read(GOOD).settings.name == "mnist"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kind: PyTorchJob", "kind: PytorchJob", "job.yaml:2: kind: 'PytorchJob' is not a Kubeflow kind"),
        (
            "kind: PyTorchJob",
            "kind: PaddleJob",
            "job.yaml:2: kind: 'PaddleJob' is not run by echelon, which",
        ),
        ("kind: PyTorchJob", "kind: Deployment", "job.yaml:2: kind: 'Deployment' is not a job"),
        ("kind: PyTorchJob\n", "", "job.yaml:1: kind: None is missing"),
        (".org/v1", ".org/v1beta1", "job.yaml:1: apiVersion: 'kubeflow.org/v1beta1' is not a version of Py"),
        ("name: mnist", "name: Mnist_1", "job.yaml:4: metadata.name: 'Mnist_1' cannot be a run's name"),
        ("  name: mnist", "  labels: {}", "job.yaml:3: metadata.name: None is missing"),
        ("replicas: 1", "replicas: 2", f"job.yaml:8: {MASTER}.replicas: 2 is not 1: there is one Master"),
        ("replicas: 1", 'replicas: "1"', f"job.yaml:8: {MASTER}.replicas: '1' is not a whole number"),
        ("replicas: 1", "replica: 1", f"job.yaml:8: {MASTER}.replica: 'replica' is not a known field"),
        ("Never", "Sometimes", f"job.yaml:9: {MASTER}.restartPolicy: 'Sometimes' is not one of Never"),
        ("Master:", "Boss:", "job.yaml:7: spec.pytorchReplicaSpecs.Boss: 'Boss' is not a replica type"),
        ("- name: pytorch\n", "- name: torch\n", f"job.yaml:12: {POD}.containers: 'torch' has no container"),
        ("- name: pytorch\n", "- tty: true\n", f"job.yaml:13: {POD}.containers[0].name: None is missing"),
        ("image: my", "img: my", f"job.yaml:14: {POD}.containers[0].img: 'img' is not a known field"),
        ("spec:\n  py", "spec:\n  workers: 2\n  py", "job.yaml:6: spec.workers: 'workers' is not a known"),
        (
            "command: [python, train.py]",
            "tty: true",
            f"job.yaml:13: {POD}.containers[0]: 'pytorch' has no com",
        ),
        ("name: mnist", "name: {{ .Values.name }}", "job.yaml:4"),
        (
            "=3",
            "={{ .Values.n }}",
            f"job.yaml:16: {POD}.containers[0].args[0]: '--epochs={{{{ .Values.n }}}}'",
        ),
        ("name: mnist", 'name: "{{ include "x" . }}"', "job.yaml:4:"),
        (
            "containers:\n",
            "volumes: {}\n          containers:\n",
            f"job.yaml:12: {POD}.volumes: {{}} is not a",
        ),
        ("spec:\n  py", "spec:\n- 1\n  py", "job.yaml"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(read: Read, old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidJob) as caught:
        read(GOOD.replace(old, new, 1))
    assert caught.value.message.startswith(says), caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 110


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_job_of_kubernetes_own_is_no_misspelt_one(read: Read, kind: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        read(GOOD.replace("kubeflow.org/v1", "batch/v1").replace("PyTorchJob", kind))
    assert caught.value.message == f"job.yaml:2: kind: {kind!r} cannot be run by echelon"
    assert caught.value.hint.startswith("it runs PyTorchJob, TFJob")


@pytest.mark.parametrize("old", ["name: mnist", "replicas: 1", "=3"])
def test_an_expression_of_a_template_is_named_as_one(read: Read, old: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        read(GOOD.replace(old, f"{old.partition(':')[0]}: {{{{ .Values.it }}}}", 1))
    assert "template" in caught.value.message
    assert "helm template" in caught.value.hint


def test_braces_of_a_program_are_its_own(read: Read) -> None:
    text = GOOD.replace("--epochs=3", "print(f'{{x}} {y}')")
    assert read(text).settings.args == ("print(f'{{x}} {y}')",)


def test_two_masters(read: Read) -> None:
    with pytest.raises(InvalidJob, match="'Master' is given twice"):
        read(GOOD + textwrap.indent("Master: {}\n", "    "))


def test_two_jobs(read: Read) -> None:
    with pytest.raises(InvalidJob, match="'PyTorchJob' is a second job in this file"):
        read(f"{GOOD}---\n{GOOD}")


def test_other_documents_must_have_a_name(read: Read) -> None:
    with pytest.raises(InvalidJob, match=r"metadata.name: None is missing"):
        read(f"{GOOD}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{}}\n")


def test_a_mount_without_its_volume(read: Read) -> None:
    mount = "volumeMounts: [{name: data, mountPath: /data}]\n              args"
    with pytest.raises(InvalidJob, match=r"volumeMounts\[0\].name: 'data' is not a volume of this pod"):
        read(GOOD.replace("args", mount, 1))


def test_other_documents_come_along(read: Read) -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: src}\ndata: {train.py: 'print(1)'}\n"
    manifest = read(f"---\n{config}---\n{GOOD}---\n")
    assert [(each["kind"], each["metadata"]["name"]) for each in manifest.objects] == [("ConfigMap", "src")]


@pytest.mark.parametrize("text", ["script: train.py\n", "script: kind.py\nargs: [apiVersion]\n"])
def test_a_job_file_is_none_of_these(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    assert read_manifest(tmp_path / "job.yaml") is None
