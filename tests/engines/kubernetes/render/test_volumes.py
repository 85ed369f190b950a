"""What the user wants mounted, as volumes of a pod."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.engines.kubernetes.render.volumes import quantity, results_claim, user_volumes
from echelon.model.pods.pod import Output, PodOptions, VolumePath, parse_mount
from echelon.model.resources import parse_size


def mounted(*texts: str, **more: object) -> tuple[list[object], list[object]]:
    options = PodOptions(mounts=tuple(parse_mount(text) for text in texts), **more)  # type: ignore[arg-type]
    found = user_volumes(options, "fm")
    return list(found.volumes), list(found.mounts)


def test_nothing_wanted() -> None:
    assert mounted() == ([], [])


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("configmap:settings:/etc/settings", {"configMap": {"name": "settings"}}),
        ("secret:keys:/etc/keys", {"secret": {"secretName": "keys"}}),
        ("nfs:10.0.0.5:/export/data:/data", {"nfs": {"server": "10.0.0.5", "path": "/export/data"}}),
        ("nfs:fd00::1:/:/data", {"nfs": {"server": "fd00::1", "path": "/"}}),
        ("hostPath:/mnt/data:/data", {"hostPath": {"path": "/mnt/data", "type": "Directory"}}),
        ("emptydir:/scratch", {"emptyDir": {}}),
        ("emptydir:1536Mi:/scratch", {"emptyDir": {"sizeLimit": "1536Mi"}}),
        ("pvc:data:/data", {"persistentVolumeClaim": {"claimName": "data"}}),
    ],
)
def test_each_kind(text: str, source: dict[str, object]) -> None:
    volumes, mounts = mounted(text)
    name = "claim-0" if text.startswith("pvc") else "mount-0"
    assert volumes == [{"name": name, **source}]
    assert mounts == [{"name": name, "mountPath": text.rpartition(":")[2]}]


def test_read_only() -> None:
    volumes, mounts = mounted("nfs:server:/export:/data:ro", "emptydir:/scratch", "secret:keys:/keys:ro")
    assert [each.get("readOnly", False) for each in mounts] == [True, False, True]  # type: ignore[attr-defined]
    assert volumes[0] == {"name": "mount-0", "nfs": {"server": "server", "path": "/export", "readOnly": True}}


def test_a_claim_in_several_places_is_one_volume() -> None:
    volumes, mounts = mounted(
        "pvc:work/data:/data:ro",
        "pvc:other:/other:ro",
        code=VolumePath(claim="work", path="project"),
        output=Output(claim="work", path="results/fm"),
    )
    assert volumes == [
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "work"}},
        {"name": "claim-1", "persistentVolumeClaim": {"claimName": "other", "readOnly": True}},
    ]
    assert mounts == [
        {"name": "claim-0", "mountPath": "/echelon/code", "subPath": "project"},
        {"name": "claim-0", "mountPath": "/echelon/results", "subPath": "results/fm"},
        {"name": "claim-0", "mountPath": "/data", "subPath": "data", "readOnly": True},
        {"name": "claim-1", "mountPath": "/other", "readOnly": True},
    ]


def test_results_on_a_claim_made_for_the_run() -> None:
    volumes, mounts = mounted(output=Output())
    assert volumes == [{"name": "claim-0", "persistentVolumeClaim": {"claimName": "fm-results"}}]
    assert mounts == [{"name": "claim-0", "mountPath": "/echelon/results"}]
    assert results_claim(PodOptions(output=Output(claim="mine")), "fm") == "mine"
    assert results_claim(PodOptions(), "fm") is None


@settings(deadline=None)
@given(st.integers(1, 2**50))
def test_a_quantity_is_read_back_as_the_same_size(size: int) -> None:
    assert parse_size("size", quantity(size)) == size
    assert len(quantity(size)) <= len(str(size)) + 1
