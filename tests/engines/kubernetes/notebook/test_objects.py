"""A notebook server as objects."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from echelon.engines.kubernetes.notebook import objects
from echelon.engines.kubernetes.notebook.objects import Surrounding
from echelon.engines.notebook_servers import ServerSettings
from echelon.errors import InvalidJob
from echelon.model.pods.pod import Output, PodOptions, parse_mount
from echelon.model.resources import Amount, Resources

ASKED = ServerSettings(
    pod=PodOptions(image="my/jupyter"),
    resources=Resources(cpus=Amount(request=0.25), memory=Amount(request=2**29)),
    files=Output(),
)
AROUND = Surrounding(owner="ann@example.org", gpu_resource="nvidia.com/gpu")


def pod_of(asked: ServerSettings, around: Surrounding = AROUND) -> dict:
    return objects.server_object("ann", asked, around)["spec"]["template"]["spec"]


def test_the_token_is_in_the_secret_alone() -> None:
    job = objects.server_object("ann", ASKED, AROUND)
    made = {**job, "metadata": {**job["metadata"], "uid": "1"}}
    secret = objects.secret_object("ann", "ann", made, "abc123")
    assert objects.token_of(secret) == "abc123"
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "1"
    env = {each["name"]: each["value"] for each in pod_of(ASKED)["containers"][0]["env"]}
    assert env["JUPYTER_TOKEN_FILE"] == "/echelon/token/token"
    assert "JUPYTER_TOKEN" not in env
    assert not env["JUPYTER_RUNTIME_DIR"].startswith(env["HOME"])  # Jupyter writes the token there
    shown = objects.previewed("ann", ASKED, AROUND)
    assert [each["kind"] for each in shown] == ["PersistentVolumeClaim", "Job", "Secret"]
    assert "data" not in shown[-1]
    assert objects.token_of(shown[-1]) == ""


def test_it_listens_to_the_pod_itself_alone() -> None:
    assert "--ip=127.0.0.1" in json.dumps(pod_of(ASKED)["containers"][0]["command"])


@pytest.mark.parametrize(
    ("files", "claim", "volume"),
    [
        (Output(size=2**30), "notebook-ann-files", {"claimName": "notebook-ann-files"}),
        (Output(claim="work", path="mine"), None, {"claimName": "work"}),
        (None, None, None),
    ],
)
def test_where_the_files_are(files: Output | None, claim: str | None, volume: dict | None) -> None:
    asked = replace(ASKED, files=files)
    made = objects.claim_object("ann", asked, "ann")
    assert (made and made["metadata"]["name"]) == claim
    spec = pod_of(asked)
    (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == "/workspace"]
    (source,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert source.get("persistentVolumeClaim") == volume
    assert mount.get("subPath") == ("mine" if files and files.path else None)


def test_a_claim_in_two_places_is_one_volume() -> None:
    mounts = (parse_mount("pvc:work/data:/data:ro"),)
    asked = replace(ASKED, files=Output(claim="work"), pod=replace(ASKED.pod, mounts=mounts))
    claims = [each for each in pod_of(asked)["volumes"] if "persistentVolumeClaim" in each]
    assert len(claims) == 1


def test_other_settings_make_another_digest() -> None:
    other = replace(ASKED, pod=replace(ASKED.pod, image="other"))
    assert objects.digest_of(ASKED) == objects.digest_of(replace(ASKED))
    assert objects.digest_of(ASKED) != objects.digest_of(other)
    assert objects.server_object("ann", ASKED, AROUND)["metadata"]["annotations"][
        "echelon.dev/asked"
    ] == objects.digest_of(ASKED)


def test_gpus_and_restricted_namespaces() -> None:
    asked = replace(ASKED, resources=replace(ASKED.resources, gpus=2))
    container = pod_of(asked)["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert "NVIDIA_VISIBLE_DEVICES" not in {each["name"] for each in container["env"]}
    without = pod_of(ASKED)["containers"][0]["env"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in without
    assert "runAsNonRoot" not in pod_of(ASKED)["securityContext"]
    assert pod_of(ASKED, replace(AROUND, level="restricted"))["securityContext"]["runAsNonRoot"]


def test_an_image_must_be_named() -> None:
    with pytest.raises(InvalidJob, match="image"):
        pod_of(replace(ASKED, pod=PodOptions()))
