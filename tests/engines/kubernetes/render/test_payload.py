"""What travels in ConfigMaps: all of it, whole, in pieces that Kubernetes takes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.kubernetes.rendered import Case, planned

from echelon.bundle import pack_files
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.record import Shipped
from echelon.engines.kubernetes.render.payload import (
    MOST_CODE,
    Payload,
    content,
    layout,
    load,
    map_names,
    parts,
    weigh,
)
from echelon.engines.kubernetes.render.task import pod_task
from echelon.engines.kubernetes.render.volumes import user_volumes
from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.pods.pod import PodOptions, VolumePath
from echelon.model.settings import Settings

SIZES = st.integers(0, 3 << 20)


@settings(deadline=None)
@given(agent=st.integers(1, 200_000), code=SIZES, wheel=SIZES, requirements=st.integers(0, 100_000))
def test_every_byte_is_in_one_piece_and_no_map_is_too_large(
    agent: int, code: int, wheel: int, requirements: int
) -> None:
    shipped = Shipped(agent=agent, code=code, wheel=wheel, requirements=requirements)
    maps = layout(shipped)
    assert all(0 < sum(piece.size for piece in pieces) <= 1_000_000 for pieces in maps)
    assert maps[0][0].key == names.AGENT_KEY
    pieces = [piece for each in maps for piece in each]
    assert len({piece.key for piece in pieces}) == len(pieces)
    for of, keys in (
        ("agent", [names.AGENT_KEY]),
        ("code", [names.part_key(number) for number in range(parts(code))]),
        ("wheel", [names.wheel_key(number) for number in range(parts(wheel))]),
        ("requirements", [names.REQUIREMENTS_KEY] if requirements else []),
    ):
        mine = [piece for piece in pieces if piece.of == of]
        assert [piece.key for piece in mine] == keys
        ends = [0]
        for piece in mine:
            assert piece.start == ends[-1]
            ends.append(piece.start + piece.size)
        assert ends[-1] == getattr(shipped, of)


def test_the_pieces_make_the_whole() -> None:
    payload = Payload(agent=b"agent", code=bytes(range(256)) * 8000, digest="d", wheel=b"w" * 1_800_000)
    found: dict[str, bytes] = {}
    for pieces in layout(weigh(payload)):
        found |= {piece.key: content(payload, piece) for piece in pieces}
    assert b"".join(found[key] for key in sorted(found) if key.startswith("part-")) == payload.code
    assert b"".join(found[key] for key in sorted(found) if key.startswith("pip-")) == payload.wheel
    assert found[names.AGENT_KEY] == b"agent"


def test_what_was_shipped_tells_everything_apart() -> None:
    payload = Payload(agent=b"a", code=b"c", digest="1", wheel=b"w", requirements=b"r")
    for change in (
        {"agent": b"A"},
        {"digest": "2"},
        {"wheel": b"W"},
        {"requirements": b"R"},
        {"wheel": None},
    ):
        assert weigh(replace(payload, **change)) != weigh(payload)  # type: ignore[arg-type]
    written = msgspec.json.encode(weigh(payload))
    assert msgspec.json.decode(written, type=Shipped) == weigh(payload)


def test_pip_goes_along_only_where_it_is_wanted(tmp_path: Path) -> None:
    job = Job(name="fm", script="a.py")
    bundle = pack_files({"a.py": b"pass"})
    plain = load(job, bundle)
    assert (plain.code, plain.digest, plain.wheel) == (bundle.data, bundle.digest, None)
    assert load(job, None).code is None
    assert load(replace(job, pod=PodOptions(pip=("numpy",))), None).wheel is not None
    listed = tmp_path / "requirements.txt"
    listed.write_text("numpy\n# -r other.txt\ntorch @ https://host/torch.whl\n--find-links https://host/\n")
    assert (
        load(replace(job, pod=PodOptions(requirements=str(listed))), None).requirements == listed.read_bytes()
    )
    in_project = PodOptions(requirements="{code}/requirements.txt")
    assert load(replace(job, pod=in_project), bundle).requirements is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("numpy\n-r other.txt\n", "names a file that does not travel"),
        ("-e .\n", "names a file that does not travel"),
        ("./wheels/x.whl\n", "names a file that does not travel"),
        (".[test]\n", "names a file that does not travel"),
        ("x @ file:///tmp/x.whl\n", "names a file that does not travel"),
        ("--find-links wheels\n", "names a file that does not travel"),
        ("--constraint=c.txt\n", "names a file that does not travel"),
        ("--extra-index-url https://me:hunter2@host/simple\n", "has a password in the open"),
        ("#" * 300_000, "is too large"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_requirements_that_cannot_travel(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InvalidJob, match=problem) as caught:
        load(Job(name="fm", script="a", pod=PodOptions(requirements=str(path))), None)
    assert caught.value.field == "requirements"
    assert "hunter2" not in str(caught.value)


def test_requirements_that_are_not_there() -> None:
    with pytest.raises(InvalidJob, match="cannot be read: No such file"):
        load(Job(name="fm", script="a", pod=PodOptions(requirements="/no/such/file")), None)


def test_code_on_a_volume_is_known_by_its_digest_and_in_no_configmap() -> None:
    job = Job(name="x", script="a.py", pod=PodOptions(code_volume=VolumePath(claim="shelf", path="code")))
    bundle = pack_files({"a.py": b"print()"})
    shipped = weigh(load(job, bundle))
    assert (shipped.code, shipped.digest) == (0, bundle.digest)
    assert [piece.of for pieces in layout(shipped) for piece in pieces] == ["agent"]
    record, plan = planned(
        Case(said=Settings(script="a.py", framework="plain", code_volume="pvc:shelf/code"))
    )
    task = pod_task(record, plan, shipped)
    assert task["bundle"]["parts"] == [f"/echelon/store/echelon-code-{bundle.digest}.tar.gz"]
    mounted = user_volumes(record.job.pod, "x")
    assert {"mountPath": "/echelon/store", "subPath": "code", "readOnly": True}.items() <= mounted.mounts[
        0
    ].items()


def test_code_that_is_too_large_for_configmaps_is_sent() -> None:
    bundle = pack_files({"a.py": b"print()", "weights": os.urandom(MOST_CODE)})
    shipped = weigh(load(Job(name="x", script="a.py"), bundle))
    assert (shipped.code, shipped.sent, shipped.digest) == (0, len(bundle.data), bundle.digest)
    assert [piece.of for pieces in layout(shipped) for piece in pieces] == ["agent"]
    record, plan = planned(Case(said=Settings(script="a.py", framework="plain")))
    assert pod_task(record, plan, shipped)["bundle"] == {
        "digest": bundle.digest,
        "target": "/echelon/space/code",
        "sent": f"/echelon/space/sent/echelon-code-{bundle.digest}.tar.gz",
        "size": len(bundle.data),
    }
    on_volume = PodOptions(code_volume=VolumePath(claim="shelf"))
    assert weigh(load(Job(name="x", script="a.py", pod=on_volume), bundle)).sent == 0


def test_other_content_has_other_names() -> None:
    """A node keeps what is immutable by its name, also when another run of that name ships something else."""
    first = weigh(Payload(agent=b"a", code=b"one", digest="1"))
    for other in (
        weigh(Payload(agent=b"a", code=b"two", digest="2")),
        weigh(Payload(agent=b"b", code=b"one", digest="1")),
        weigh(Payload(agent=b"a", code=b"one", digest="1", requirements=b"numpy")),
    ):
        assert not {*map_names("demo", first)} & {*map_names("demo", other)}
    assert map_names("demo", first) == map_names("demo", weigh(Payload(agent=b"a", code=b"one", digest="1")))
