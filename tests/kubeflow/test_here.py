"""A job that was written for pods, on this machine: which paths are what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.kubeflow import Here, Manifest, on_this_machine, parse_maps

Read = Callable[[str], Manifest]
JOB = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {name: mnist}
    spec:
      pytorchReplicaSpecs:
        Worker:
          restartPolicy: Never
          template:
            spec:
              containers:
                - name: pytorch
                  image: my/torch:2
                  command: [COMMAND]
                  env: [{name: DATA, value: "/data/train:/data"}]
                  volumeMounts: [{name: data, mountPath: /data}]
              volumes: [{name: data, persistentVolumeClaim: {claimName: mnist-data}}]
"""
THERE = ("/tmp", "/usr/bin/env", "/home/me/data", "/home/me/src", "/home/me/src/train.py", "/srv/local.py")


def here(
    read: Read,
    command: str,
    maps: dict[str, str] | None = None,
    there: Collection[str] = THERE,
    changes: Mapping[str, str] | None = None,
) -> Here:
    text = JOB.replace("COMMAND", command)
    for old, new in (changes or {}).items():
        text = text.replace(old, new)
    manifest = read(text)
    places = {"/data": "/home/me/data", **(maps or {})}
    return on_this_machine(manifest, manifest.settings, places, Path("/srv"), lambda path: path in there)


def test_paths_of_volumes_become_folders_of_this_machine(read: Read) -> None:
    found = here(
        read,
        '/usr/bin/env, python, /src/train.py, --data=/data/mnist, "/database", "cd /data; ls \'/data\'"',
        {"/src": "/home/me/src", "/database": "/tmp"},
    ).settings
    assert found.command == (
        "/usr/bin/env",
        "python",
        "/home/me/src/train.py",
        "--data=/home/me/data/mnist",
        "/tmp",
        "cd /home/me/data; ls '/home/me/data'",
    )
    assert found.env is not None
    assert found.env["DATA"] == "/home/me/data/train:/home/me/data"


def test_the_image_is_not_used_and_that_is_said(read: Read) -> None:
    notes = here(read, "python, local.py").notes
    assert "image my/torch:2 is not used: programs and packages are this machine's" in notes


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("python, /opt/mnist/train.py", "/opt/mnist/train.py"),
        ("/opt/conda/bin/python, local.py", "/opt/conda/bin/python"),
        ('sh, -c, "torchrun /workspace/train.py"', "/workspace/train.py"),
        ("python, local.py, --config=/etc/mnist/config.yaml", "/etc/mnist/config.yaml"),
        ("python, local.py, /unknown", "/unknown"),
        ("python, /tmp/train.py", "/tmp/train.py"),
        ("python, mnist.py, --epochs, 3", "mnist.py"),
    ],
)
def test_a_path_that_only_the_image_has_is_refused_by_name(read: Read, command: str, names: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        here(read, command)
    assert caught.value.value == names


@pytest.mark.parametrize(
    "command",
    [
        "python, local.py, --save, /tmp/model.pt",
        "python, local.py, https://example.com/a/b",
        "python, -m, pkg.train, s3://bucket/path",
        'python, -c, "print(1 / 2)"',
        "python, local.py, --new, output/out.py",
    ],
)
def test_paths_that_can_be_here_are_not_refused(read: Read, command: str) -> None:
    assert here(read, command).settings.command


def test_a_volume_that_is_nowhere_is_refused_with_the_flag_that_helps(read: Read) -> None:
    manifest = read(JOB.replace("COMMAND", "python, local.py"))
    with pytest.raises(InvalidJob, match=r"'/data' \(persistentVolumeClaim mnist-data\) is not on") as caught:
        on_this_machine(manifest, manifest.settings, {}, Path("/srv"), lambda path: path in THERE)
    assert "--map /data=FOLDER" in caught.value.hint


CONFIG = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: mnist-data}
data: {train.py: print(1), other.py: print(2)}
"""


def test_a_config_map_of_the_file_is_written_out(read: Read) -> None:
    text = JOB.replace("COMMAND", "python, /data/train.py").replace(
        "persistentVolumeClaim: {claimName:", "configMap: {name:"
    )
    text = "\n".join(line.removeprefix("    ") for line in text.splitlines()).replace(
        '"/data/train:/data"', "x"
    )
    manifest = read(text + CONFIG)
    found = on_this_machine(manifest, manifest.settings, {}, Path("/srv"), lambda path: path in THERE)
    assert found.settings.command == ("python", "{code}/.volumes/mnist-data/train.py")
    assert found.files == {
        ".volumes/mnist-data/train.py": b"print(1)",
        ".volumes/mnist-data/other.py": b"print(2)",
    }


def test_the_working_directory_is_mapped_too(read: Read) -> None:
    text = {"image:": "workingDir: /src\n                  image:"}
    found = here(read, "python, train.py", {"/src": "/home/me/src"}, changes=text).settings
    assert found.command == ("sh", "-c", 'cd "$0" && exec "$@"', "/home/me/src", "python", "train.py")
    with pytest.raises(InvalidJob, match="workingDir: '/src' is not on this machine"):
        here(read, "python, train.py", changes=text)


def test_what_only_a_cluster_has_is_listed(read: Read) -> None:
    more = {
        "env: [": "env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}, ",
        "containers:": "initContainers: [{name: fetch, image: i}]\n              containers:",
    }
    notes = here(read, "python, local.py", changes=more).notes
    assert any(note.startswith("variables of the cluster are not set: TOKEN") for note in notes)
    assert "other containers of the pods are not started: fetch" in notes


@pytest.mark.parametrize("text", ["/data", "data=./x", "/data=", "/data=./nowhere"])
def test_a_map_that_means_nothing(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidJob, match="map"):
        parse_maps([text], tmp_path)


def test_maps_are_seen_from_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert parse_maps(["/opt/mnist/src/=./src"], tmp_path) == {"/opt/mnist/src": str(tmp_path / "src")}


def seen(read: Read, command: str, maps: dict[str, str], scripts: Mapping[str, str]) -> list[str]:
    """What is said of `--map` for these scripts of this machine."""
    manifest = read(JOB.replace("COMMAND", command))
    places = {"/data": "/home/me/data", **maps}
    found = on_this_machine(
        manifest,
        manifest.settings,
        places,
        Path("/srv"),
        lambda path: path in (*THERE, *scripts),
        lambda path: scripts.get(path, ""),
    )
    return [note for note in found.notes if "--map" in note]


def test_a_map_that_nothing_uses_is_remarked(read: Read) -> None:
    assert seen(read, "python, local.py", {"/dta": "/tmp"}, {}) == [
        "--map /dta: no path of the job is there, and nothing is mapped"
    ]
    assert seen(read, "python, local.py, --save=/out/x", {"/out": "/tmp"}, {}) == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python, local.py", "/srv/local.py"),
        ('sh, -c, "cd /tmp && torchrun /src/train.py --lr 1"', "/home/me/src/train.py"),
        ("python, -m, pkg.train", "/srv/pkg/train.py"),
    ],
)
def test_a_path_in_a_scripts_own_text_is_said_before_it_trains(read: Read, command: str, script: str) -> None:
    text = "# writes to /data\nimport torch\ntorch.save(model, '/data/model.pt')\n"
    maps = {"/src": "/home/me/src"} if "/src/" in command else {}
    (note,) = seen(read, command, maps, {script: text})
    name = script.rpartition("/")[2]
    assert note.startswith(f"{name} has /data in its own text (line 3), where --map does not reach")
    assert seen(read, command, maps, {script: "open('/database/x')"}) == []
