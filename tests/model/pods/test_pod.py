"""What is said of pods: how people write it, and what is refused."""

from __future__ import annotations

import posixpath

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.model.job import Job, validate
from echelon.model.meaning import to_job
from echelon.model.pods import pod
from echelon.model.pods.pod import Mount, Output, PodOptions, Toleration, VolumePath
from echelon.model.settings import Settings

NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
FOLDER = st.from_regex(r"[A-Za-z0-9_]{1,8}(/[A-Za-z0-9_.-]{1,8}x){0,2}", fullmatch=True)
PLACE = FOLDER.map(lambda folder: f"/mnt/{folder}")
SOURCES = {
    "pvc": st.builds(lambda name, folder: f"{name}/{folder}" if folder else name, NAME, st.just("") | FOLDER),
    "configmap": NAME,
    "secret": NAME,
    "nfs": st.builds(
        lambda server, folder: f"{server}:/{folder}", NAME | st.just("fd00::1"), FOLDER | st.just("")
    ),
    "hostPath": st.just("/") | FOLDER.map(lambda folder: f"/{folder}"),
    "emptydir": st.just("") | st.integers(1, 99).map(lambda count: f"{count}Gi"),
}


def said(**settings_said: object) -> PodOptions:
    return to_job(Settings(script="a", **settings_said), name="x").pod  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.data(), st.sampled_from(pod.KINDS), PLACE, st.sampled_from(["", ":ro", ":rw"]), st.booleans())
def test_a_mount_is_read_as_it_was_put_together(
    data: st.DataObject, kind: pod.Kind, place: str, mode: str, shout: bool
) -> None:
    source = data.draw(SOURCES[kind])
    text = f"{kind.upper() if shout else kind}:{source}:{place}{mode}"
    assert pod.parse_mount(text) == Mount(
        kind=kind, source=source, path=posixpath.normpath(place), read_only=mode == ":ro"
    )


ODD = st.text(st.sampled_from("aechelon:/.ro10Gi-_ \0"), max_size=15)
ODD_PLACE = st.lists(st.sampled_from(["", ".", "..", "echelon", "work", "a", "b c"]), max_size=5).map(
    lambda steps: "/" + "/".join(steps)
)


@settings(deadline=None)
@given(st.sampled_from([*pod.KINDS, ""]), ODD, ODD_PLACE | ODD)
def test_no_text_is_read_as_a_mount_outside_its_bounds(kind: str, source: str, place: str) -> None:
    try:
        mount = pod.parse_mount(f"{kind}:{source}:{place}")
    except InvalidJob:
        return
    assert mount.path == "/" + "/".join(step for step in mount.path.split("/") if step)
    assert mount.path != "/"
    assert ".." not in mount.path.split("/")
    assert not {":", "\0"} & set(mount.path)
    assert not (mount.path + "/").startswith("/echelon/")


def test_an_empty_folder_needs_no_source() -> None:
    wanted = Mount(kind="emptydir", source="", path="/scratch")
    assert pod.parse_mount("emptydir:/scratch") == pod.parse_mount("emptydir::/scratch") == wanted


@pytest.mark.parametrize(
    ("setting", "value", "problem", "hint"),
    [
        ("image", "My/Torch", "is not an image's name", "lower case"),
        ("image", "http://host/torch", "is not an image's name", "REGISTRY/NAME:TAG"),
        ("image", "torch:", "is not an image's name", "REGISTRY/NAME:TAG"),
        ("image", "torch two", "is not an image's name", "REGISTRY/NAME:TAG"),
        ("image", "torch@sha256:12", "is not an image's name", "REGISTRY/NAME:TAG"),
        ("pull_secret", ["My Secret"], "cannot be the name", "as in pull_secret: my-secret"),
        ("mount", ["disk:a:/a"], "is not one of pvc, configmap", "KIND:SOURCE:/path"),
        ("mount", ["pvc:data"], "does not say where", "KIND:SOURCE:/path"),
        ("mount", ["pvc:data:rel"], "does not say where", "KIND:SOURCE:/path"),
        ("mount", ["pvc::/data"], "cannot be the name", "lower case"),
        ("mount", ["pvc:data/../x:/data"], "is not a path on a volume", "without . and .."),
        ("mount", ["configmap:a/b:/data"], "cannot be the name", "a-b"),
        ("mount", ["hostPath:data:/data"], "does not name a folder of the node", "hostPath:/mnt/data"),
        ("mount", ["hostPath:/a/../b:/data"], "does not name a folder of the node", "hostPath:/mnt/data"),
        ("mount", ["nfs:server:/data"], "does not name a server and its export", "nfs:SERVER:/export:/path"),
        ("mount", ["emptydir:lots:/data"], "is not an amount", "16Gi"),
        ("mount", ["pvc:data:/"], "takes /,", "choose another path"),
        ("mount", ["pvc:data:/echelon/space"], "takes /echelon/space", "choose another path"),
        ("mount", ["pvc:data://echelon//space/"], "takes /echelon/space", "choose another path"),
        ("mount", ["pvc:data:/data/../proc"], "takes /proc", "choose another path"),
        ("mount", ["pvc:data:/data/../x"], "is not a plain path", "without .."),
        ("mount", ["emptydir:/dev/shm"], "is where shared memory is", "--shm SIZE"),
        ("mount", ["pvc:a:/data", "pvc:b:/data/"], "is given twice", "a path of its own"),
        ("node_selector", {"a b": "c"}, "has no label's name", "kubernetes.io/arch=amd64"),
        ("node_selector", {"a/b/c": "c"}, "has no label's name", "kubernetes.io/arch=amd64"),
        ("node_selector", {"a": "no way"}, "has a value that no label can have", "63"),
        ("toleration", ["gpu:Never"], "has no effect among NoSchedule", "dedicated=training:NoSchedule"),
        ("toleration", ["=x"], "has no label's name", "KEY[=VALUE][:EFFECT]"),
        ("toleration", [":NoSchedule"], "has no label's name", "KEY[=VALUE][:EFFECT]"),
        ("service_account", "Me", "cannot be the name", "as in service_account: me"),
        ("priority_class", "high!", "cannot be the name", "as in priority_class: high"),
        ("shm", "lots", "is not an amount", "16Gi or 500M"),
        ("shm", "1Gi:2Gi", "is not a size", "16Gi or 500M"),
        ("code", "work/project", "is not a folder on a volume", "pvc:work/project"),
        ("code", "pvc:", "is not a folder on a volume", "pvc:work/project"),
        ("code", "pvc:work/../..", "is not a path on a volume", "without . and .."),
        ("pip", ["-r x"], "is an option of pip", "--requirements"),
        ("output", "out", "is not a place for results", "new:10Gi"),
        ("output", "pvc:", "is not a place for results", "pvc:NAME/path"),
        ("output", "new:lots", "is not an amount", "16Gi"),
        ("label", {"echelon.dev/run": "x"}, "is echelon's own", "another name"),
        ("label", {"team": "a b"}, "has a value that no label can have", "63"),
        ("annotation", {"app.kubernetes.io/managed-by": "x"}, "is echelon's own", "another name"),
        ("annotation", {"a b": "x"}, "has no label's name", "cost-centre"),
        ("output", "new:1Gi:No Class", "cannot be the name", "no-class"),
        ("linger", "soon", "is not a time", "30s, 5m"),
        ("linger", -1, "is not a time above zero", "30s, 5m"),
        ("ttl", 0, "is not a time above zero", "30s, 5m"),
        ("ttl", "99999d", "is longer than Kubernetes can count", "24855d"),
        ("pip", ["a\0"], "holds a NUL byte", "no program"),
        ("collect", ["a\0"], "holds a NUL byte", "no program"),
        ("requirements", "a\0", "holds a NUL byte", "no program"),
    ],
)
def test_what_cannot_be_is_refused_with_its_fix(setting: str, value: object, problem: str, hint: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        said(**{setting: value})
    assert caught.value.field == setting
    assert problem in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "my/torch",
        "python:3.12-slim",
        "docker.io/pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime",
        "localhost/torch",
        "registry:5000/team/torch",
        "10.0.0.5:5000/a__b/c-d.e:Tag_1",
        "[fd00::1]:5000/torch:1",
        f"nvcr.io/nvidia/pytorch:24.05-py3@sha256:{'ab' * 32}",
    ],
)
def test_images(text: str) -> None:
    assert said(image=text).image == text


def test_a_password_in_a_package_is_refused_and_not_repeated() -> None:
    for text in (
        "x @ https://me:hunter2@host/x.whl",
        "git+https://hunter2@host/x",
        "git+ssh://a:hunter2@host/x",
    ):
        with pytest.raises(InvalidJob, match="--secret PIP_INDEX_URL") as caught:
            said(pip=[text])
        assert "hunter2" not in str(caught.value)
    kept = ("torch==2.9", "git+https://host/x@main", "git+ssh://git@host/x", "x; python_version < '3.9'")
    assert said(pip=kept).pip == kept


def test_everything_said() -> None:
    assert said(
        image="my/torch",
        pull="always",
        pull_secret=("a", "b"),
        mount=("pvc:data/train:/data:ro", "nfs:10.0.0.5:/export:/nfs"),
        node_selector={"kubernetes.io/arch": "amd64", "pool": 7, "empty": ""},
        toleration=("gpu", "team=a", "x:NoExecute", "y=:PreferNoSchedule"),
        service_account="me",
        priority_class="high",
        shm="2Gi",
        code="pvc:work/project/",
        pip=("numpy",),
        requirements="requirements.txt",
        output="pvc:work/results/one",
        linger="1h",
        ttl="2d",
        collect=("/data/cache", "more"),
    ) == PodOptions(
        image="my/torch",
        pull="always",
        pull_secrets=("a", "b"),
        mounts=(
            Mount(kind="pvc", source="data/train", path="/data", read_only=True),
            Mount(kind="nfs", source="10.0.0.5:/export", path="/nfs"),
        ),
        node_selector={"kubernetes.io/arch": "amd64", "pool": "7", "empty": ""},
        tolerations=(
            Toleration(key="gpu"),
            Toleration(key="team", value="a"),
            Toleration(key="x", effect="NoExecute"),
            Toleration(key="y", value="", effect="PreferNoSchedule"),
        ),
        service_account="me",
        priority_class="high",
        shm=2 * 2**30,
        code=VolumePath(claim="work", path="project"),
        pip=("numpy",),
        requirements="requirements.txt",
        output=Output(claim="work", path="results/one"),
        linger=3600.0,
        ttl=2 * 86400.0,
        collect=("/data/cache", "more"),
    )


def test_what_is_left_out_has_the_defaults_that_help_shows() -> None:
    assert said() == PodOptions(linger=300.0, ttl=7 * 86400.0)
    assert said(output="new:").output == said(output="new").output == Output(size=10 * 2**30)
    assert said(output="new:1Gi@fast").output == Output(size=2**30, storage_class="fast")
    assert said(output="new:1Gi:fast").output == said(output="new:1Gi@fast").output
    assert said(output="new:@fast").output == Output(size=10 * 2**30, storage_class="fast")
    assert said(output="pvc:work").output == Output(claim="work")
    assert said(linger=0).linger == said(linger="0").linger == 0.0


def test_a_job_made_by_hand_is_checked_too() -> None:
    mount = Mount(kind="pvc", source="a", path="/data")
    with pytest.raises(InvalidJob, match="is given twice"):
        validate(Job(name="x", script="a", pod=PodOptions(mounts=(mount, mount))))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("ckpt", "ckpt"),
        ("./ckpt/", "ckpt"),
        ("{output}/ckpt", "ckpt"),
        ("{output}//a/./b", "a/b"),
        ("my logs/ckpt", "my logs/ckpt"),
    ],
)
def test_the_folder_of_checkpoints_is_below_the_results(text: str, path: str) -> None:
    assert said(checkpoints=text).checkpoints == path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("/data/ckpt", "is not below the results"),
        ("{output}ckpt", "is not below {output}"),
        ("../ckpt", "is not a plain path"),
        ("{output}/a/../b", "is not a plain path"),
        ("", "is not a folder below the results"),
        (".", "is not a folder below the results"),
        ("{output}", "is not a folder below the results"),
        ("{output}/", "is not a folder below the results"),
        ("logs/ckpt", "is where the ranks' logs are"),
        ("ck\0pt", "NUL"),
    ],
)
def test_a_folder_of_checkpoints_that_cannot_be(text: str, problem: str) -> None:
    with pytest.raises(InvalidJob, match=problem) as caught:
        said(checkpoints=text)
    assert caught.value.field == "checkpoints"
    assert caught.value.hint


def test_a_record_of_before_there_were_checkpoints_is_read() -> None:
    older = msgspec.to_builtins(said(checkpoints="ckpt"))
    del older["checkpoints"]
    assert msgspec.convert(older, PodOptions).checkpoints is None
